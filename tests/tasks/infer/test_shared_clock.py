"""Two calls that share a device have half of each second each."""

import pytest

from overnight.tasks.infer import worker
from overnight.tasks.infer.worker import ConcurrentTimer


def test_calls_are_told_together_the_time_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(worker.time, "perf_counter", lambda: now[0])
    clock = ConcurrentTimer()
    before = clock()
    now[0] += 5
    assert clock() - before == 5, "it goes on while nothing is under way"
    with clock.call():
        first = clock()
        now[0] += 1
        assert clock() - first == 1, "a call alone has all of its seconds"
        with clock.call():
            second = clock()
            now[0] += 4
            second = clock() - second
        now[0] += 2
        first = clock() - first
    assert (first, second) == (1 + 2 + 2, 2)
