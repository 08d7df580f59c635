"""The end of a run that a user cancels."""

import contextvars
import signal
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from overnight.flows.runs.cancellation import RunCancelled, interruptible, is_stopping, pause, stoppable
from tests.prefect_api import ask


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
                pause(60)

    with stoppable(), ThreadPoolExecutor(1) as pool:
        with pytest.raises(RunCancelled):
            pool.submit(contextvars.copy_context().run, work).result()
        assert is_stopping()
    assert ask(prefect_api, f"/flow_runs/{run}")["state"]["type"] == "CANCELLED"
    ask(prefect_api, f"/flows/{flow}", method="DELETE")


def test_a_stoppable_body_inside_another_has_its_event() -> None:
    with stoppable() as outer, stoppable() as inner:
        assert inner is outer
    with stoppable() as other:
        assert other is not outer
