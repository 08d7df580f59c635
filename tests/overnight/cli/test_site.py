"""`overnight site`: what it writes and says, as files and as a server."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from click.testing import CliRunner

from overnight.cli.main import main
from tests.flows.history.test_site import lake


def test_it_says_where_the_pages_are_and_which_job_it_cannot_read(tmp_path: Path) -> None:
    folder = lake(tmp_path)
    (folder / "cats/_overnight/date=2026-01-01/receipt.json").write_text("{")
    done = CliRunner().invoke(main, ["site", str(folder)], catch_exceptions=False)
    assert done.stdout == f"{folder}/_overnight_site/index.html: 2 jobs, 1 partitions\n"
    assert f"{folder}/cats/_overnight: " in done.stderr
    assert "expected a JSON object" in done.stderr


def test_a_folder_that_is_gone_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["site", str(tmp_path / "gone")])
    assert (done.exit_code, "expected a folder" in done.stderr) == (1, True)


def test_it_serves_until_it_is_interrupted_and_writes_nothing(tmp_path: Path) -> None:
    folder = lake(tmp_path)
    command = [sys.executable, "-c", "from overnight.cli.main import main; main(prog_name='overnight')"]
    environment = {**os.environ, "PREFECT_API_AUTH_STRING": "overnight:secret-1"}
    # Tests in the background of a shell ignore SIGINT, and their children inherit that.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [*command, "site", str(folder), "--serve", "0"], env=environment, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        assert process.stderr
        line = process.stderr.readline()
        assert "show rows" in line
        assert "secret-1" not in line
        page = httpx.get(line.split()[1], auth=("overnight", "secret-1"), trust_env=False, timeout=60)
        assert "cats" in page.text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert not (folder / "_overnight_site").exists()
