"""How a task is tried again, on a real Ray and a real Prefect server."""

import os
from pathlib import Path
from typing import Any

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from overnight.flows.job.retries import Retries
from overnight.flows.runs.retries import run_task
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.tasks.errors import ContractError, OvernightError, ServiceUnavailable
from overnight.tasks.state.run import Run
from tests.tasks.runs import make_run

pytestmark = pytest.mark.usefixtures("prefect_api", "ray_session")


def tries(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("try-*"))]


@task(name="infer", task_run_name="infer: the stream", cache_policy=NO_CACHE, persist_result=False)
def infer(run: Run, folder: str, fault: str) -> str:
    count = len(tries(Path(folder)))
    Path(folder, f"try-{count}").write_text(run.attempt)
    if count < 1 and fault == "storage":
        raise ServiceUnavailable("the store did not answer")
    if count < 1 and fault == "death":
        os._exit(1)
    if fault == "contract":
        raise ContractError("the model broke its contract")
    return "done"


ingest = infer.with_options(name="ingest")  # names no file


def run_with(fault: str, folder: Path, task: Any = infer) -> tuple[Any, list[tuple[str, int, list[str]]]]:
    """What the flow returned or raised, and of each of its task runs the name, the count of tries and the states."""
    ids: list[Any] = []

    @flow(task_runner=OvernightTaskRunner(), persist_result=False)
    def probe() -> str:
        from prefect.runtime import flow_run

        ids.append(flow_run.id)
        retries = Retries(attempts=3, delay_seconds=0.2)
        return str(run_task(task, retries, make_run(folder), str(folder), fault).result())

    try:
        ended: Any = probe()
    except OvernightError as error:
        ended = error
    with get_client(sync_client=True) as client:
        mine = FlowRunFilter(id=FlowRunFilterId(any_=ids))
        found = sorted(client.read_task_runs(flow_run_filter=mine), key=lambda run: run.expected_start_time)
        names = [(run.name, run.run_count, [s.name for s in client.read_task_run_states(run.id)]) for run in found]
    return ended, names


@pytest.mark.slow
def test_a_task_that_storage_failed_is_tried_again_by_prefect(tmp_path: Path) -> None:
    ended, [(name, count, states)] = run_with("storage", tmp_path)
    assert (ended, name, count, len(tries(tmp_path))) == ("done", "infer: the stream", 2, 2)
    assert "AwaitingRetry" in states


def test_a_task_whose_process_died_is_started_again_by_the_flow_as_a_new_attempt(tmp_path: Path) -> None:
    ended, found = run_with("death", tmp_path)
    assert ended == "done"
    assert "infer (attempt 2 of 3: worker died)" in [name for name, _, _ in found]
    first, second = tries(tmp_path)
    assert first != second  # no part of the second replaces one of the first


def test_what_would_fail_again_is_tried_once(tmp_path: Path) -> None:
    ended, [(_, count, _)] = run_with("contract", tmp_path)
    assert (type(ended), ended.stage, count, len(tries(tmp_path))) == (ContractError, "infer", 1, 1)


def test_a_task_that_names_no_file_starts_again_in_the_attempt_whose_order_the_others_read(tmp_path: Path) -> None:
    ended, _ = run_with("death", tmp_path, ingest)
    first, second = tries(tmp_path)
    assert (ended, second) == ("done", first)
