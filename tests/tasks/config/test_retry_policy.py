"""Waits that double, up to a limit, and are never the same for two callers."""

import itertools

import pytest

from overnight.flows.job.retries import Retries
from overnight.tasks.config.retry_policy import RetryPolicy


def test_waits_double_up_to_the_longest_and_are_one_fewer_than_tries() -> None:
    policy = RetryPolicy(max_tries=6, first_wait_seconds=1.0, longest_wait_seconds=5.0, jitter=(1, 1))
    assert list(policy.waits()) == [1, 2, 4, 5, 5]
    assert policy.wait_seconds(5_000) == 5, "a server may ask for thousands of tries"
    assert list(RetryPolicy(1, 1.0, 8.0).waits()) == []


@pytest.mark.parametrize("jitter", [(0.5, 1.5), (0, 1)])
def test_a_wait_is_drawn_between_the_two_factors(jitter: tuple[float, float]) -> None:
    policy = RetryPolicy(max_tries=2, first_wait_seconds=4.0, longest_wait_seconds=4.0, jitter=jitter)
    waits = {policy.wait_seconds(1) for _ in range(200)}
    assert len(waits) > 1
    assert 4 * jitter[0] <= min(waits) < 4 * (jitter[0] + 0.2)
    assert 4 * (jitter[1] - 0.2) < max(waits) <= 4 * jitter[1]


def test_waits_go_on_as_long_as_the_callers_time_does() -> None:
    policy = RetryPolicy(None, first_wait_seconds=2.0, longest_wait_seconds=60.0, jitter=(1, 1), growth=1.5)
    assert list(itertools.islice(policy.waits(), 4)) == [2, 3, 4.5, 6.75]
    assert next(itertools.islice(policy.waits(), 10_000, None)) == 60


def test_a_jobs_delays_grow_by_its_own_factor() -> None:
    assert Retries(attempts=4, delay_seconds=5, backoff=3).delays() == [5, 15, 45]
    assert Retries(attempts=50, delay_seconds=1, backoff=1.1).delays()[-1] == pytest.approx(1.1**48)
    assert Retries(attempts=1).delays() == []
