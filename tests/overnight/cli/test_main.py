"""The command line as a script meets it: exit codes, and one JSON document on stdout."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from overnight.cli.main import main
from tests import jobs
from tests.flows.conftest import Overnight
from tests.overnight.cli.results_on_disk import write_job, write_result
from tests.prefect_api import ask

DAY = "2026-01-02"
# Commands that only look, one after another in a process.
LOOK = """
import sys
from overnight.cli.main import main

assert not {"prefect", "ray", "overnight.flows"} & set(sys.modules)
for line in ("preview job.yaml --partition 2026-01-02 --rows 12", "show job.yaml", "validate job.yaml"):
    try:
        main(line.split(), prog_name="overnight")
    except SystemExit:
        pass
print(sorted({"prefect", "ray", "torch", "transformers", "s3fs"} & set(sys.modules)))
"""


@pytest.fixture
def job_file(pictures: Path, tmp_path: Path) -> Path:
    sink = {"kind": "parquet", "path": "out"}
    source = {"kind": "images", "path": "in/date={partition}"}
    return jobs.write_job(tmp_path / "job.yaml", name="pictures", source=source, sink=sink)


@pytest.mark.slow
def test_a_run_prints_its_receipt_and_nothing_else(
    overnight: Overnight, overnight_process: Overnight, job_file: Path, tmp_path: Path, prefect_api: str
) -> None:
    done = overnight_process("run", "job.yaml", "--partition", DAY, "--json", "--ray-dashboard")
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    assert (receipt["status"], receipt["rows_out"]) == ("published", 12)
    assert "Prefect UI: " in done.stderr
    assert "Starting Ray, about 10 s\n" in done.stderr
    [dashboard] = re.findall(r"^Ray's dashboard: (http://127\.0\.0\.1:[0-9]+)$", done.stderr, re.MULTILINE)
    summaries = ask(prefect_api, "/artifacts/filter", {"artifacts": {"key": {"any_": ["pictures-summary"]}}})
    assert any(f"[Ray's dashboard]({dashboard})" in summary["data"] for summary in summaries)
    assert all((tmp_path / "out" / file).is_file() for file in receipt["files"])
    again = overnight("run", "job.yaml", "--partition", DAY, "--json")
    assert (again.returncode, json.loads(again.stdout)) == (0, receipt)
    assert "nothing ran" not in done.stderr
    assert f"pictures: nothing ran: {DAY} is published and not stale, since" in again.stderr
    assert "It runs again with --force, or once its inputs, settings, models or code change." in again.stderr


def test_a_failed_run_says_where_and_why_and_exits_with_1(overnight: Overnight, job_file: Path) -> None:
    done = overnight("run", "job.yaml", "--partition", "2030-01-01", "--json")
    failure = json.loads(done.stdout)
    assert done.returncode == 1
    assert (failure["job"], failure["partition"], failure["status"]) == ("pictures", "2030-01-01", "failed")
    assert (failure["stage"], failure["error_type"]) == ("ingest", "InputError")
    assert "date=2030-01-01" in failure["error_message"]
    assert "Traceback" not in done.stderr


def test_status_has_the_failures_and_exits_with_0(overnight: Overnight, job_file: Path, tmp_path: Path) -> None:
    ledger = tmp_path / f"out/_overnight/date={DAY}"
    ledger.mkdir(parents=True)
    failure = {"job": "pictures", "attempt": "a", "stage": "infer", "error_message": "no memory", "failed_at": "2026"}
    (ledger / "failure.json").write_text(json.dumps(failure))
    days = ("--start", "2026-01-01", "--end", DAY)
    done = overnight("status", "job.yaml", *days, "--json", "--inputs")
    assert done.returncode == 0, done.stderr
    found = [(entry["partition"], entry["status"], entry["why"]) for entry in json.loads(done.stdout)]
    assert found == [("2026-01-01", "missing", []), (DAY, "failed", ["infer: no memory"])]
    assert "inputs of 0 of 0 partitions" in done.stderr
    shown = overnight("status", "job.yaml", *days)
    assert (shown.returncode, "infer: no memory" in shown.stdout) == (0, True)
    (ledger / "failure.json").write_text("{")
    broken = overnight("status", "job.yaml")
    assert (broken.returncode, broken.stdout) == (1, "")
    assert f"date={DAY}/failure.json: expected a JSON object" in broken.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run job.yaml --partition yesterday", "YYYY-MM-DD"),
        ("run job.yaml --set sink.pth=x", "sink.pth"),
        ("run job.yaml --limit-rows 0", "limit-rows"),
        ("run", "JOB.yaml"),
        ("validate", "expected JOB.yaml"),
        ("init", "expected --path, found no such option and no terminal for a prompt"),
        ("status job.yaml --start yesterday", "yesterday"),
        ("deploy", "expected deployments/prefect.yaml, found no file"),
        ("deploy job.yaml", "expected full paths or URIs in a deployment, found sink.path: out"),
        ("serve job.yaml", "expected full paths or URIs in a deployment, found sink.path: out"),
    ],
)
def test_bad_usage_exits_with_2_and_names_the_mistake_before_a_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("overnight.flows.runs.local_server.prefect_server", lambda: pytest.fail("a server was started"))
    jobs.write_job(tmp_path / "job.yaml", sink={"kind": "csv", "path": "out"})
    done = CliRunner().invoke(main, arguments.split())
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_the_process_exits_with_2_after_bad_usage(overnight_process: Overnight) -> None:
    done = overnight_process("run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "JOB.yaml" in done.stderr


def test_the_shipped_schema_is_the_current_one() -> None:
    shipped = Path(__file__).parents[3] / "deployments/jobs/job.schema.json"
    schema = json.loads(CliRunner().invoke(main, ["validate", "--schema"]).stdout)
    assert json.loads(shipped.read_text()) == schema
    assert schema["required"] == ["name", "source", "sink"]


def test_commands_that_only_look_import_neither_prefect_nor_ray(pictures: Path, tmp_path: Path) -> None:
    write_job(tmp_path, source={"kind": "images", "path": str(tmp_path / "in/date={partition}")})
    write_result(tmp_path, DAY, pa.table({"row_id": ["a"]}))
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
    assert "12 rows" in done.stdout
    assert f"daily/{DAY}: published at" in done.stdout
    assert "job 'daily' is valid" in done.stdout


def test_prefects_notice_of_its_telemetry_comes_after_the_output_of_the_first_command(
    job_file: Path, tmp_path: Path
) -> None:
    shown = on_a_terminal("status", str(job_file), PREFECT_HOME=str(tmp_path / "home"))
    assert 0 < shown.index("missing") < shown.index("Prefect collects anonymous usage data")
    assert "Prefect collects" not in on_a_terminal("status", str(job_file), PREFECT_HOME=str(tmp_path / "home"))


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """Return what a command prints on a terminal. Prefect's telemetry is on, and a proxy that is away holds it back."""
    away = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment = {**os.environ, **away, **variables}
    for name in ("DO_NOT_TRACK", "CI", "GITHUB_ACTIONS"):
        environment.pop(name, None)
    master, slave = pty.openpty()
    command = [str(Path(sys.executable).with_name("overnight")), *arguments]
    shown = b""
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=environment):
        os.close(slave)
        with contextlib.suppress(OSError):  # Linux raises at the end of a terminal
            while piece := os.read(master, 4096):
                shown += piece
    os.close(master)
    return shown.decode()
