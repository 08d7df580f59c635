"""The run's log: the output of user code in all processes of a run, limited in its number of lines."""

from collections import deque
from collections.abc import Sequence

FIRST_LINES, LAST_LINES = 2000, 2000  # the lines that are kept


class RunLog:
    """The first and the last lines of a run, and how many there were between them."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._count = 0

    def add(self, lines: Sequence[str]) -> None:
        self._count += len(lines)
        room = FIRST_LINES - len(self._first)
        self._first += lines[:room]
        self._last.extend(lines[room:])

    def since(self, number: int) -> tuple[int, list[str]]:
        """Return the number of all lines so far, and the kept ones after the first `number`.

        A greater `number` comes from a supervisor that was lost: then all lines are new.
        """
        number = number if number <= self._count else 0
        between = self._count - len(self._first) - len(self._last)
        start = max(number - len(self._first) - between, 0)
        return self._count, [*self._first[number:], *list(self._last)[start:]]

    def text(self) -> str:
        """Return the kept lines as one text, with the number of lines that are left out. It is empty without lines."""
        between = self._count - len(self._first) - len(self._last)
        marker = [f"... {between:,} lines are left out here ..."] if between else []
        return "".join(f"{line}\n" for line in [*self._first, *marker, *self._last])
