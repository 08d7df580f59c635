"""The end of a run that a user cancels."""

import contextvars
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID, uuid4

import prefect.runtime
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import TerminationSignal

from overnight.flows.runs import cancellation
from overnight.flows.runs.cancellation import (
    RunCancelled,
    cancellable,
    completed,
    interruptible,
    is_stopping,
    stoppable,
)
from overnight.flows.runs.prefect_internals import run_flow
from tests.prefect_api import ask


def end_of_deployed(api: str, body: Callable[[], Any]) -> FlowRun:
    """Run `body` as the flow of a deployment, in this process and without Prefect's runner. Return the run's end."""
    name = body.__name__
    described = flow(name=f"test-{name}", persist_result=False)(body)
    flow_id = ask(api, "/flows/", {"name": described.name})["id"]
    deployment = ask(api, "/deployments/", {"name": name, "flow_id": flow_id})["id"]
    run = ask(api, f"/deployments/{deployment}/create_flow_run", {"state": {"type": "PENDING"}})["id"]
    with get_client(sync_client=True) as client:
        run_flow(described, flow_run=client.read_flow_run(UUID(run)), return_type="state")
        ended = client.read_flow_run(UUID(run))
    ask(api, f"/flows/{flow_id}", method="DELETE")
    return ended


def press_cancel(api: str, state: str = "CANCELLING") -> None:
    ask(api, f"/flow_runs/{prefect.runtime.flow_run.id}/set_state", {"state": {"type": state}})


def test_cancel_in_the_ui_ends_a_run_in_a_thread_and_signals_stay_as_they_were(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overnight.flows.runs.cancellation.SECONDS_BETWEEN", 0.1)
    flow = ask(prefect_api, "/flows/", {"name": "test-cancel"})["id"]
    run = ask(prefect_api, "/flow_runs/", {"flow_id": flow, "state": {"type": "RUNNING"}})["id"]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def work() -> None:
        with interruptible(UUID(run)):
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
            cancelling = {"state": {"type": "CANCELLING"}, "force": True}
            ask(prefect_api, f"/flow_runs/{run}/set_state", cancelling)
            while True:
                cancellation.pause(60)

    with stoppable(), ThreadPoolExecutor(1) as pool:
        with pytest.raises(RunCancelled):
            pool.submit(contextvars.copy_context().run, work).result()
        assert is_stopping()
    assert ask(prefect_api, f"/flow_runs/{run}")["state"]["type"] == "CANCELLED"
    ask(prefect_api, f"/flows/{flow}", method="DELETE")


def test_a_signal_interrupts_although_its_message_has_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "get_client", MagicMock())  # a server that is not asked

    def say() -> None:
        raise SystemExit(1)  # what rich raises for a broken pipe

    with pytest.raises(RunCancelled), interruptible(uuid4(), say):
        signal.raise_signal(signal.SIGINT)


def test_a_stoppable_body_inside_another_has_its_event() -> None:
    with stoppable() as outer, stoppable() as inner:
        assert inner is outer
    with stoppable() as other:
        assert other is not outer


def test_a_deployments_run_ends_as_cancelled_if_prefects_runner_no_longer_looks_for_cancel(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overnight.flows.runs.cancellation.SECONDS_BETWEEN_DEPLOYED", 0.1)

    @cancellable
    def waits() -> None:
        press_cancel(prefect_api)
        while True:
            cancellation.pause(60)

    ended = end_of_deployed(prefect_api, waits)
    assert ended.state_name == "Cancelled"
    assert ended.state
    assert str(ended.state.message).startswith("Cancelled in plan. Staged parts are kept")


@pytest.mark.usefixtures("prefect_api")
def test_a_deployments_backfill_whose_worker_stops_leaves_its_end_to_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(prefect.runtime.deployment), "id", str(uuid4()))
    monkeypatch.setitem(vars(prefect.runtime.flow_run), "id", str(uuid4()))

    @cancellable
    def backfills() -> None:
        with stoppable() as stopping:
            stopping.set()  # for the runs of its partitions
            raise TerminationSignal(signal.SIGTERM)

    with pytest.raises(TerminationSignal):
        backfills()


@pytest.mark.parametrize("state", ["CANCELLING", "CANCELLED"])
def test_a_run_that_was_cancelled_and_published_all_the_same_ends_as_completed(state: str, prefect_api: str) -> None:
    @cancellable
    def publishes() -> Any:
        press_cancel(prefect_api, state)
        return completed("9,000 rows published", {})

    ended = end_of_deployed(prefect_api, publishes)
    assert ended.state_name == "Completed"
    assert ended.state
    assert ended.state.message == "9,000 rows published; it was cancelled too late"
