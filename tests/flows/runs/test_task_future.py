"""What the future of a task does for the Prefect server. `test_prefect_ray_internals.py` ends one here."""

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE

from overnight.flows.runs.task_runner import OvernightTaskRunner
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
