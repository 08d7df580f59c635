"""Waits that double, up to a limit, and are never the same for two callers."""

import pytest

from overnight.tasks.config.retry_policy import RetryPolicy


def test_there_is_one_wait_fewer_than_tries() -> None:
    assert len(list(RetryPolicy(5, 1.0, 8.0).waits())) == 4
    assert list(RetryPolicy(1, 1.0, 8.0).waits()) == []


def test_waits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(max_tries=6, first_wait_seconds=1.0, longest_wait_seconds=5.0, jitter=(1, 1))
    assert list(policy.waits()) == [1, 2, 4, 5, 5]


@pytest.mark.parametrize("jitter", [(0.5, 1.5), (0, 1)])
def test_a_wait_is_drawn_between_the_two_factors(jitter: tuple[float, float]) -> None:
    policy = RetryPolicy(max_tries=2, first_wait_seconds=4.0, longest_wait_seconds=4.0, jitter=jitter)
    waits = {policy.wait_seconds(1) for _ in range(200)}
    assert len(waits) > 1
    assert 4 * jitter[0] <= min(waits) < 4 * (jitter[0] + 0.2)
    assert 4 * (jitter[1] - 0.2) < max(waits) <= 4 * jitter[1]


def test_a_server_that_asks_for_thousands_of_tries_gets_them() -> None:
    assert RetryPolicy(3, 0.5, 8.0, jitter=(1, 1)).wait_seconds(5_000) == 8
