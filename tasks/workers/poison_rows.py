"""Find the row that kills its worker, by a crash, a hang or an out-of-memory kill.

Before a worker runs rows that may have killed another worker, it reports these rows. If the same block comes back from
another worker, the reported rows of the dead worker are suspects. They run again in pieces a `PIECES`th as large, down
to one row. A row is quarantined if `DEATHS` workers died while they ran it alone, or one ended itself and is certain of
the cause. A block has any name that stays the same when Ray runs it again.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

PIECES = 16
DEATHS = 2

Reason = tuple[str, str]  # error type and message
UNEXPLAINED: Reason = (
    "WorkerDied",
    f"{DEATHS} workers died while they ran this row alone: a segmentation fault, an out-of-memory kill or the like",
)


@dataclass(frozen=True)
class BlockLeft:
    """A worker has finished its block."""

    worker: str


@dataclass(frozen=True)
class RowsBegun:
    """A worker now runs the rows start <= n < stop of a block."""

    worker: str
    block: Hashable
    start: int
    stop: int


@dataclass(frozen=True)
class RowsEnded:
    """The rows of the worker's last `RowsBegun` did not kill it."""

    worker: str


@dataclass(frozen=True)
class DeathExplained:
    """A worker ends itself, or was ended by its time limit, for this reason."""

    worker: str
    reason: Reason
    is_certain: bool  # a row that the worker runs alone is certainly the cause, and is not tried again


WorkerEvent = BlockLeft | RowsBegun | RowsEnded | DeathExplained


@dataclass
class _Case:
    """A block that may contain a poison row."""

    pieces: list[int]  # for each row the largest piece, in rows, in which it may run
    deaths: dict[int, int] = field(default_factory=dict)  # by row: the workers that died of it alone
    poison: dict[int, Reason] = field(default_factory=dict)  # by row


class PoisonRowTracker:
    """The record of one run by which poison rows are found. `worker` is a name that no other process has."""

    def __init__(self) -> None:
        self._reports: dict[str, RowsBegun] = {}  # by worker
        self._explanations: dict[str, DeathExplained] = {}  # by worker
        self._arrived: dict[str, Hashable] = {}  # by worker: its current block
        self._cases: dict[Hashable, _Case] = {}

    def on(self, event: WorkerEvent) -> None:
        """Record an event. A reason counts for the rows that its worker runs at that time."""
        match event:
            case BlockLeft(worker):
                self._arrived.pop(worker, None)
            case RowsBegun(worker):
                self._reports[worker] = event
                self._explanations.pop(worker, None)
            case RowsEnded(worker):
                self._reports.pop(worker, None)
            case _:
                self._explanations[event.worker] = event

    def arrive(self, worker: str, block: Hashable) -> tuple[bool, bool]:
        """Record that a worker begins a block. Return whether another worker died of it, and whether it runs in pieces.

        A worker that began the block and never left it must have died. A block with a poison row also runs in pieces.
        """
        dead = [name for name, current in self._arrived.items() if current == block and name != worker]
        for name in dead:
            del self._arrived[name]
        self._arrived[worker] = block
        has_poison = block in self._cases and bool(self._cases[block].poison)
        return bool(dead), bool(dead) or has_poison

    def suspects(self, worker: str, block: Hashable) -> list[str]:
        """Return the other workers that ran rows of the block and have not ended them, so they must have died."""
        reports = self._reports
        return [name for name in reports if reports[name].block == block and name != worker]

    def judge(self, worker: str, block: Hashable, count: int) -> tuple[list[tuple[int, int]], dict[int, Reason]]:
        """Return how a block of `count` rows that may have killed a worker must run: its pieces and its poison rows.

        A piece is (start, stop), rows start <= n < stop of the block. A poison row must not run.
        """
        case = self._cases.setdefault(block, _Case([_smaller(count)] * count))
        for suspect in self.suspects(worker, block):
            self._convict(case, self._reports.pop(suspect), self._explanations.pop(suspect, None))
        pieces: list[tuple[int, int]] = []
        for row, size in enumerate(case.pieces):
            if row in case.poison:
                continue
            start, stop = pieces[-1] if pieces else (-1, -1)
            if stop == row and case.pieces[start] == size and stop - start < size:
                pieces[-1] = (start, row + 1)
            else:
                pieces.append((row, row + 1))
        return pieces, dict(case.poison)

    @staticmethod
    def _convict(case: _Case, report: RowsBegun, explanation: DeathExplained | None) -> None:
        """Cut the rows of a dead worker into smaller pieces. A single row may be poison."""
        row, size = report.start, report.stop - report.start
        if size > 1:
            case.pieces[row : report.stop] = [_smaller(size)] * size
            return
        case.deaths[row] = case.deaths.get(row, 0) + 1
        if (explanation and explanation.is_certain) or case.deaths[row] >= DEATHS:
            case.poison[row] = explanation.reason if explanation else UNEXPLAINED


def _smaller(count: int) -> int:
    return max(1, -(-count // PIECES))
