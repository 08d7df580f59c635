"""Whether the rows of a block go together or apart: apart if one of them may have killed a worker.

Rows that go apart are worked on in pieces, so that it is known which of them a process dies of. Known killers are
quarantined without another try. `watchdog.py` does both; this file decides when.
"""

import contextlib
import threading
from dataclasses import dataclass

ISOLATED_CALLS = 8  # of a worker started again: more than Ray Data has under way with one, and sends to it again


@dataclass(frozen=True)
class RowIsolation:
    """How a block's rows are worked on, from its read to its results."""

    is_on: bool


TOGETHER, APART = RowIsolation(False), RowIsolation(True)


class RestartIsolation:
    """The isolation of a worker's calls: of the first calls if the worker was started again, otherwise of none.

    `one_at_a_time`: to hold while rows are worked on. A process that dies then works on the rows of one call.
    """

    def __init__(self, is_restarted: bool) -> None:
        self._calls_left = ISOLATED_CALLS if is_restarted else 0
        self.one_at_a_time: contextlib.AbstractContextManager[object] = (
            threading.Lock() if is_restarted else contextlib.nullcontext()
        )

    def next_call(self) -> RowIsolation:
        """Return the isolation of the rows that the worker now receives."""
        if not self._calls_left:
            return TOGETHER
        self._calls_left -= 1
        return APART
