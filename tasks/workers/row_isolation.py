"""Decide whether the rows of a block run together, or apart because one of them may have killed a worker.

Rows that run apart run in pieces, so that a process that dies shows which of them killed it. Known poison rows are
quarantined without another try. `watchdog.py` does both, and this file decides when.
"""

import contextlib
import threading
from dataclasses import dataclass

ISOLATED_CALLS = 8  # of a worker started again: more calls than Ray Data has under way with it, and repeats


@dataclass(frozen=True)
class RowIsolation:
    """How the rows of a block run: in pieces if `is_on`, to find a row that kills its worker, otherwise together."""

    is_on: bool


TOGETHER, APART = RowIsolation(False), RowIsolation(True)


class RestartIsolation:
    """Decides for each call of a worker whether the rows of its block run in pieces.

    Only the first `ISOLATED_CALLS` calls do so, and only if `is_restarted`: Ray started the worker again after it died.
    Calls hold the lock `one_at_a_time` while rows run. So if such a worker dies again, it ran the rows of only one
    call.
    """

    def __init__(self, is_restarted: bool) -> None:
        self._calls_left = ISOLATED_CALLS if is_restarted else 0
        self.one_at_a_time: contextlib.AbstractContextManager[object] = (
            threading.Lock() if is_restarted else contextlib.nullcontext()
        )

    def next_call(self) -> RowIsolation:
        """Return how the rows of the worker's next call run, and count this call."""
        if not self._calls_left:
            return TOGETHER
        self._calls_left -= 1
        return APART
