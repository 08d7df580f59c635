"""What the states that a flow run has had tell of crashes and of Cancel."""

from datetime import timedelta
from pathlib import Path

import pytest
from prefect import flow, states, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.states import AwaitingRetry, Cancelled, Cancelling, Crashed, Pending, Running, Scheduled

from overnight.flows.runs.attempt import bury_publisher, is_publisher_dead
from overnight.flows.runs.retries import crashes_in_a_row, end_dead_run, was_cancelled
from tests.flows.ledger.published import leave_lease
from tests.tasks.runs import make_run


def later(state: State, seconds: float) -> State:
    return state.model_copy(update={"timestamp": state.timestamp + timedelta(seconds=seconds)})


BEGUN = [Scheduled(), Pending(), Running()]
AGAIN = [AwaitingRetry(), Pending(), Running()]
# One death, as Prefect's runner, its worker and the automation report it.
BY_RUNNER = Crashed(message="Process exited with status code: -9. It was killed.")
BY_WORKER = Crashed(message="Flow run infrastructure exited with non-zero status code -9.")
BY_AUTOMATION = Crashed(message="No heartbeat of the flow's process for two minutes.")
DEAD = pytest.mark.parametrize("state", [Running(), BY_AUTOMATION])  # an automation may have noticed it first


@flow
def dead() -> None: ...


@pytest.mark.parametrize(
    ("then", "cancelled"),
    [
        ([Crashed(), *AGAIN], False),
        ([Cancelling(), Crashed(), *AGAIN], True),
        ([Cancelling(), Crashed(), AwaitingRetry(), Pending(), Cancelled(), Pending(), Running()], True),
        ([Cancelling(), Crashed(), *AGAIN, Crashed(), *AGAIN], True),
        ([Cancelling(), Cancelled(), *AGAIN], False),
        ([Cancelling(), Cancelled(), *AGAIN, Crashed(), *AGAIN], False),
        ([Cancelling(), Cancelled(), *AGAIN, Cancelling(), Crashed(), *AGAIN], True),
    ],
)
def test_a_run_that_was_cancelled_stays_so_until_somebody_asks_for_it_again(then: list[State], cancelled: bool) -> None:
    assert was_cancelled([*BEGUN, *then]) is cancelled


@pytest.mark.parametrize(
    ("then", "crashes"),
    [
        ([], 0),
        ([Crashed(), *AGAIN], 1),
        ([Crashed(), *AGAIN, Crashed(), *AGAIN], 2),
        ([Crashed(), AwaitingRetry(), Crashed(), *AGAIN], 1),
        ([Crashed(), AwaitingRetry(), Pending(), Crashed(), Running(), Crashed(), *AGAIN], 2),
        ([Crashed(), AwaitingRetry(), Pending(), later(Crashed(), 11), *AGAIN], 2),
        ([BY_RUNNER, AwaitingRetry(), Pending(), later(BY_WORKER, 30), *AGAIN], 1),
        ([BY_WORKER, AwaitingRetry(), Pending(), later(BY_AUTOMATION, 90), *AGAIN], 1),
        ([BY_WORKER, AwaitingRetry(), Pending(), later(BY_WORKER, 30), *AGAIN], 2),
        ([BY_RUNNER, AwaitingRetry(), later(BY_WORKER, 30), Pending(), later(BY_WORKER, 60), *AGAIN], 2),
        ([Crashed(), *AGAIN, states.Failed(), *AGAIN, Crashed(), *AGAIN], 1),
        ([Crashed(), *AGAIN, states.Completed()], 0),
    ],
)
def test_crashes_count_since_the_run_last_ended_otherwise(then: list[State], crashes: int) -> None:
    assert crashes_in_a_row([*BEGUN, *then]) == crashes


@DEAD
def test_a_run_whose_partition_was_taken_over_is_crashed_and_so_are_its_tasks(state: State, prefect_api: str) -> None:
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(dead, state=state)
        step = client.create_task_run(task(dead.fn), run.id, "0", state=Running())
        end_dead_run(str(run.id))
        assert client.read_flow_run(run.id).state_type == StateType.CRASHED
        assert client.read_task_run(step.id).state_type == StateType.CRASHED


@DEAD
def test_a_run_whose_process_died_when_it_had_published_is_completed_by_the_next(
    state: State, prefect_api: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(dead, state=state)
        leave_lease(Path(run.ledger.template), "dead", str(flow_run.id))
        assert not is_publisher_dead(run, {"token": 7}), "it held the partition after the one that published"
        assert is_publisher_dead(run, {"token": 1})
        bury_publisher(run)
        assert not is_publisher_dead(run, {"token": 1})
        assert client.read_flow_run(flow_run.id).state_type == StateType.COMPLETED
