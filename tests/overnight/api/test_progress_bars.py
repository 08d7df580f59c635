"""What the terminal shows while a run goes on."""

import time
from uuid import UUID

import pytest

from overnight.api.progress_bars import progress
from tests.prefect_api import ask


def test_without_a_terminal_lines_say_which_task_runs_and_how_far_the_rows_are(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("overnight.api.progress_bars.SECONDS_BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr("overnight.api.progress_bars.SECONDS_BETWEEN_LINES", 0.2)
    flow = ask(prefect_api, "/flows/", {"name": "test-terminal"})["id"]
    run = ask(prefect_api, "/flow_runs/", {"flow_id": flow})["id"]
    shown = ""

    def wait_for(text: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while text not in shown and time.monotonic() < deadline:
            time.sleep(0.1)
            shown += capsys.readouterr().err
        assert text in shown

    with progress("shown", UUID(run), ("ingest", "infer")):
        wait_for(" s  waiting for the first task\n")
        task = {
            "flow_run_id": run,
            "task_key": "infer",
            "dynamic_key": "0",
            "name": "infer: read, prepare, infer, stage",
        }
        ask(prefect_api, "/task_runs/", {**task, "state": {"type": "RUNNING"}})
        wait_for(" s  infer: loading the models and running them\n")
        shown_there = {
            "description": "ingest: 7 rows · infer: 4 rows",
            "metadata_": {"ingest": "70.0", "infer": ""},
        }
        ask(prefect_api, "/artifacts/", {"key": "shown-progress", "type": "progress", "data": 40, **shown_there})
        wait_for(" s  ingest: 7 rows (70%), infer: 4 rows\n")

        # a partition of a backfill that has ended, before the next one has progress of its own
        ended = ask(prefect_api, "/flow_runs/", {"flow_id": flow, "state": {"type": "COMPLETED"}})["id"]
        last = {"flow_run_id": ended, "description": "ingest: 10 rows", "metadata_": {"ingest": "100.0"}}
        ask(prefect_api, "/artifacts/", {"key": "shown-progress", "type": "progress", "data": 100, **last})
        shown = ""
        wait_for(" s  infer: loading the models and running them\n")
        assert "ingest: 10 rows" not in shown
    ask(prefect_api, f"/flows/{flow}", method="DELETE")
