"""The run's log: the output of user code in all processes of a run, limited in its number of lines."""

from collections import deque
from collections.abc import Sequence

FIRST_LINES, LAST_LINES = 2000, 2000  # the lines that are kept


class RunLog:
    """The output of user code in one run: its first and last lines, and the number of lines between them."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._count = 0

    def add(self, lines: Sequence[str]) -> None:
        """Add lines without line ends. Only the first `FIRST_LINES` and the last `LAST_LINES` of all lines are kept."""
        self._count += len(lines)
        room = FIRST_LINES - len(self._first)
        self._first += lines[:room]
        self._last.extend(lines[room:])

    def since(self, number: int) -> tuple[int, list[str]]:
        """Return the number of all lines so far, and the kept lines after the first `number` lines."""
        if number > self._count:  # it counts the lines of an earlier log, which was lost
            number = 0
        between = self._count - len(self._first) - len(self._last)
        start = max(number - len(self._first) - between, 0)
        return self._count, [*self._first[number:], *list(self._last)[start:]]


def text(count: int, lines: list[str]) -> str:
    """Return the kept lines of a log of `count` lines as one text; a line in their midst counts the others."""
    if count > len(lines):
        marker = f"... {count - len(lines):,} lines are left out here ..."
        lines = [*lines[:FIRST_LINES], marker, *lines[FIRST_LINES:]]
    return "".join(f"{line}\n" for line in lines)
