"""When rows are kept apart: by a worker that was started again, at first."""

import threading
from concurrent.futures import ThreadPoolExecutor

from overnight.tasks.workers.row_isolation import APART, ISOLATED_CALLS, TOGETHER, RestartIsolation


def test_only_the_first_calls_of_a_worker_started_again_keep_their_rows_apart() -> None:
    again, first = RestartIsolation(True), RestartIsolation(False)
    assert [again.next_call() for _ in range(ISOLATED_CALLS + 3)] == [APART] * ISOLATED_CALLS + [TOGETHER] * 3
    assert [first.next_call() for _ in range(3)] == [TOGETHER] * 3


def test_a_worker_started_again_works_on_the_rows_of_one_call_at_a_time() -> None:
    at_work = threading.Barrier(2)

    def meets(isolation: RestartIsolation) -> bool:
        """Whether two threads are at work in the same moment."""

        def work(_: int) -> bool:
            with isolation.one_at_a_time:
                try:
                    at_work.wait(0.5)
                except threading.BrokenBarrierError:
                    return False
                return True

        at_work.reset()
        with ThreadPoolExecutor(2) as threads:
            return all(threads.map(work, range(2)))

    assert meets(RestartIsolation(False))
    assert not meets(RestartIsolation(True))
