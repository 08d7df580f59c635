"""Two calls that share a device have half of each second each."""

import time

import pytest

from overnight.tasks.infer import worker
from overnight.tasks.infer.worker import ConcurrentTimer


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [100.0]
    monkeypatch.setattr(worker.time, "perf_counter", lambda: moment[0])
    return moment


def test_a_call_alone_has_all_of_its_seconds(now: list[float]) -> None:
    clock = ConcurrentTimer()
    with clock.call():
        started = clock()
        now[0] += 3
        assert clock() - started == 3


def test_what_two_calls_are_told_is_the_time_that_passed(now: list[float]) -> None:
    clock = ConcurrentTimer()
    with clock.call():
        first = clock()
        now[0] += 1
        with clock.call():
            second = clock()
            now[0] += 4
            second = clock() - second
        now[0] += 2
        first = clock() - first
    assert (first, second) == (1 + 2 + 2, 2)
    assert first + second == now[0] - 100


def test_it_goes_on_where_nothing_is_under_way() -> None:
    clock = ConcurrentTimer()
    started = clock()
    time.sleep(0.01)
    assert clock() > started
