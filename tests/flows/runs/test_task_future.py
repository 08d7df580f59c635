"""The future of a task, and what is used of prefect-ray's internals: a test breaks when they move."""

import ast
import importlib
import inspect
import textwrap
from typing import Any, NoReturn
from uuid import uuid4

import prefect_ray
import pytest
import ray
from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Crashed
from prefect_ray import task_runners

from overnight.flows.runs import task_future
from overnight.flows.runs.task_future import OvernightFuture
from overnight.flows.runs.task_runner import OvernightTaskRunner
from overnight.tasks.errors import OvernightError
from tests.chaos.conftest import task_runs, wait_for_task_runs
from tests.prefect_api import ask


@task(cache_policy=NO_CACHE)
def reserved() -> None: ...


def test_a_task_run_that_the_server_missed_is_reported_again(prefect_api: str, ray_session: None) -> None:
    @flow(task_runner=OvernightTaskRunner(), persist_result=False)
    def probe() -> str:
        flow_run_id = str(runtime.flow_run.id)
        future = reserved.submit()
        future.result()
        wait_for_task_runs(prefect_api, flow_run_id, "COMPLETED")
        ask(prefect_api, f"/task_runs/{future.task_run_id}", method="DELETE")
        assert task_runs(prefect_api, flow_run_id) == {}
        return flow_run_id

    (name,) = reported = task_runs(prefect_api, probe())
    assert name.endswith(reserved.name)
    assert reported[name] == "COMPLETED"


def attributes(of: object) -> set[str]:
    """The names of the attributes that prefect-ray's code reads and sets."""
    code = textwrap.dedent(inspect.getsource(of))  # type: ignore[arg-type]
    return {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}


def test_a_future_that_was_ended_here_has_that_state_for_prefect_too() -> None:
    future = OvernightFuture[int](task_run_id=uuid4(), wrapped_future=None)  # type: ignore[arg-type]
    assert not future.has_ended
    future.end_as(Crashed(message="gone"))
    assert (future.has_ended, future.state.is_crashed()) == (True, True)
    with pytest.raises(Exception, match="gone"):
        future.result()
    assert "_final_state" in attributes(task_runners.PrefectRayFuture.result)


def test_a_second_signal_while_rows_are_staged_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Any] = []

    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(task_future, "local_ray", interrupted)  # the first signal, while the flow waits
    monkeypatch.setattr(ray, "cancel", lambda task, force: ends.append((task, force)))
    future = OvernightFuture[int](task_run_id=uuid4(), wrapped_future="the task")  # type: ignore[arg-type]
    future.stop_stream = interrupted
    with pytest.raises(KeyboardInterrupt):
        future.wait()
    assert ends == [("the task", True)]


def test_the_runner_sends_and_shuts_down_what_is_set_here() -> None:
    assert "_run_prefect_task" in attributes(task_runners.RayTaskRunner.submit)
    assert "_owns_ray" in attributes(task_runners.RayTaskRunner.__exit__)
    assert OvernightTaskRunner._run_prefect_task is not task_runners.RayTaskRunner._run_prefect_task


def test_another_version_of_prefect_ray_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_ray, "__version__", "0.7.0")
    with pytest.raises(OvernightError, match=r"expected prefect-ray 0\.6\.\*.*found 0\.7\.0.*pip install"):
        importlib.reload(task_future)
