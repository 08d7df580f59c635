"""Ctrl-C: the finished rows are staged before the run ends, and the next run resumes them."""

import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests import jobs
from tests.chaos.conftest import parts, settled_rows
from tests.chaos.runs import finish, set_pace, slow_model, started_runs, traced_rows, wait_until

ROWS, SECONDS_A_ROW = 2000, 0.02
LOST = 240  # at most: two workers pass on their rows every two seconds


@pytest.mark.slow
def test_an_interrupt_stages_the_rows_of_the_open_part_and_the_next_run_resumes_them(
    tmp_path: Path, prefect_api: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in range(ROWS)))
    settings = {"retries": {"attempts": 1}, "inference": [slow_model(tmp_path, SECONDS_A_ROW) | {"batch_size": 10}]}
    job = jobs.job(tmp_path, **settings)
    job["source"] = {"kind": "jsonl", "path": f"{tmp_path}/in"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    with started_runs(tmp_path, prefect_api) as start:
        process = start()
        wait_until(lambda: parts(tmp_path), process)
        first, traced = settled_rows(tmp_path), traced_rows(tmp_path)
        wait_until(lambda: traced_rows(tmp_path) >= traced + 2 * LOST, process)
        traced = traced_rows(tmp_path)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        output, messages = process.communicate(timeout=60)
        assert process.returncode == 1, messages
        assert time.monotonic() - began < 20
        assert "Interrupted: the finished rows are staged first" in messages
        assert '"status": "cancelled"' in output
        settled = settled_rows(tmp_path)
        assert settled > first
        assert settled >= traced - LOST

        set_pace(tmp_path, 0)
        assert finish(start())["rows_resumed"] == settled
