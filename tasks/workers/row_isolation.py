"""Decide whether the rows of a block run together, or in pieces because one of them may have killed a worker."""

import contextlib
import threading
from dataclasses import dataclass

ISOLATED_CALLS = 8  # of a worker started again: more calls than Ray Data has under way with it, and repeats


@dataclass(frozen=True)
class RowIsolation:
    """How the rows of a block run: in pieces if `is_on`, otherwise together. `watchdog.py` does it."""

    is_on: bool


TOGETHER, APART = RowIsolation(False), RowIsolation(True)


class RestartIsolation:
    """Isolates the first `ISOLATED_CALLS` calls of a worker that Ray started again after it died.

    Such calls hold the lock `one_at_a_time` while rows run. If the worker dies again, it ran the rows of one call.
    """

    def __init__(self, is_restarted: bool) -> None:
        self._calls = ISOLATED_CALLS if is_restarted else 0
        self.one_at_a_time: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if is_restarted:
            self.one_at_a_time = threading.Lock()

    def next_call(self) -> RowIsolation:
        """Return how the rows of the worker's next call run, and count this call."""
        if not self._calls:
            return TOGETHER
        self._calls -= 1
        return APART
