"""What the states that a flow run has had tell of crashes and of Cancel."""

import pytest
from prefect.client.schemas.objects import State
from prefect.states import (
    AwaitingRetry,
    Cancelled,
    Cancelling,
    Completed,
    Crashed,
    Failed,
    Pending,
    Running,
    Scheduled,
)

from flows.crashes import crashes_in_a_row, was_cancelled

BEGUN = [Scheduled(), Pending(), Running()]
AGAIN = [AwaitingRetry(), Pending(), Running()]


@pytest.mark.parametrize(
    ("states", "cancelled"),
    [
        ([*BEGUN, Crashed(), *AGAIN], False),
        ([*BEGUN, Cancelling(), Crashed(), *AGAIN], True),
        ([*BEGUN, Cancelling(), Crashed(), AwaitingRetry(), Pending(), Cancelled(), Pending(), Running()], True),
        ([*BEGUN, Cancelling(), Crashed(), *AGAIN, Crashed(), *AGAIN], True),
        ([*BEGUN, Cancelling(), Cancelled(), *AGAIN], False),
        ([*BEGUN, Cancelling(), Cancelled(), *AGAIN, Crashed(), *AGAIN], False),
        ([*BEGUN, Cancelling(), Cancelled(), *AGAIN, Cancelling(), Crashed(), *AGAIN], True),
    ],
)
def test_a_run_that_was_cancelled_stays_so_until_somebody_asks_for_it_again(
    states: list[State], cancelled: bool
) -> None:
    assert was_cancelled(states) is cancelled


@pytest.mark.parametrize(
    ("states", "crashes"),
    [
        (BEGUN, 0),
        ([*BEGUN, Crashed(), *AGAIN], 1),
        ([*BEGUN, Crashed(), *AGAIN, Crashed(), *AGAIN], 2),
        ([*BEGUN, Crashed(), *AGAIN, Failed(), *AGAIN, Crashed(), *AGAIN], 1),
        ([*BEGUN, Crashed(), *AGAIN, Completed()], 0),
    ],
)
def test_crashes_count_since_the_run_last_ended_otherwise(states: list[State], crashes: int) -> None:
    assert crashes_in_a_row(states) == crashes
