"""A screen follows a flow run by the tasks and the artifacts on the Prefect server."""

import time
from dataclasses import replace
from uuid import UUID

import pytest

from overnight.api.progress_followed import following
from overnight.api.progress_screen import Screen
from overnight.tasks.engine.progress import Progress, StageProgress
from tests.prefect_api import ask

SEVEN = Progress(9.0, {"ingest": StageProgress(7), "infer": StageProgress(4)}, 10)


def test_without_a_terminal_lines_name_the_task_that_runs_and_the_rows_of_each_stage(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("overnight.api.progress_followed.SECONDS_BETWEEN_LOOKS_FOR_LINES", 0.1)
    monkeypatch.setattr("overnight.api.progress_screen.SECONDS_BETWEEN_LINES", 0.2)
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

    with Screen() as screen, following(screen, "shown", UUID(run)):
        task = {
            "flow_run_id": run,
            "task_key": "infer",
            "dynamic_key": "0",
            "name": "infer: read, prepare, infer, stage",
        }
        ask(prefect_api, "/task_runs/", {**task, "state": {"type": "RUNNING"}})
        wait_for(" s  infer: loading the models and running them\n")
        artifact = {"key": "shown-progress", "type": "progress", "flow_run_id": run}
        facts = {"partition": "2026-11-17", **SEVEN.as_texts()}
        ask(prefect_api, "/artifacts/", {**artifact, "data": 40, "metadata_": facts})
        wait_for(" s  ingest: 7 of 10 rows · infer: 4 of 10 rows\n")

        backfill = {"key": "shown-progress-backfill", "type": "progress", "description": "backfill: 1 of 2"}
        ask(prefect_api, "/artifacts/", {**backfill, "data": 50})
        complete = replace(SEVEN, stages={"ingest": StageProgress(10), "infer": StageProgress(10)}, is_complete=True)
        facts = {"partition": "2026-11-17", **complete.as_texts()}
        ask(prefect_api, "/artifacts/", {**artifact, "data": 100, "metadata_": facts})
        wait_for(" s  backfill: 1 of 2 · ingest: 10 rows · infer: 10 rows · running the partitions")
    ask(prefect_api, f"/flows/{flow}", method="DELETE")
