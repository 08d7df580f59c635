"""Find the row that kills its worker, by a crash, a hang or an out-of-memory kill.

Before a worker runs rows that may have killed another worker, it reports these rows. If the same block comes back from
another worker, the reported rows of the dead worker are suspects. They run again in pieces a `PIECES`th as large, down
to one row. A row is quarantined without another try if `DEATHS` workers died while they ran it alone. It is also
quarantined if one worker ended itself and is certain of the cause.

Any name that stays the same when Ray runs a block again identifies the block. A row is identified by its place in it.
Blocks that killed no worker leave no record. This file does not use Ray.
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
class HandBegun:
    """A worker now runs the rows start <= n < stop of a block."""

    worker: str
    block: Hashable
    start: int
    stop: int


@dataclass(frozen=True)
class HandEnded:
    """The rows of the worker's last `HandBegun` did not kill it."""

    worker: str


@dataclass(frozen=True)
class DeathExplained:
    """A worker ends itself, or was ended by its time limit, for this reason."""

    worker: str
    reason: Reason
    is_certain: bool  # a row that the worker runs alone is certainly the cause, and is not tried again


WorkerEvent = BlockLeft | HandBegun | HandEnded | DeathExplained


@dataclass
class _Case:
    """A block that may contain a poison row.

    `pieces` has for each row the largest piece, in rows, in which it may run. `deaths` counts the workers that died of
    a row alone.
    """

    pieces: list[int]
    deaths: dict[int, int] = field(default_factory=dict)
    condemned: dict[int, Reason] = field(default_factory=dict)


class PoisonRowTracker:
    """The record of one run by which poison rows are found: the blocks that workers run, and the workers that died.

    `worker` is a name that no other process has. `block` is a name of a block that stays the same when the block runs
    again.
    """

    def __init__(self) -> None:
        self._hands: dict[str, HandBegun] = {}  # by worker
        self._explained: dict[str, DeathExplained] = {}  # by worker
        self._arrived: dict[str, Hashable] = {}  # by worker: its current block
        self._cases: dict[Hashable, _Case] = {}

    def on(self, event: WorkerEvent) -> None:
        """Record an event. A reason counts for the rows that its worker runs at that time."""
        match event:
            case BlockLeft(worker):
                self._arrived.pop(worker, None)
            case HandBegun(worker):
                self._hands[worker] = event
                self._explained.pop(worker, None)
            case HandEnded(worker):
                self._hands.pop(worker, None)
            case _:
                self._explained[event.worker] = event

    def arrive(self, worker: str, block: Hashable) -> tuple[bool, bool]:
        """Record that a worker begins a block.

        Return two booleans. The first is True if another worker began the block and never left it, so it must have
        died. The second is True if the block must run in pieces, for that reason or because it has a known poison row.
        """
        others = [other for other, at in self._arrived.items() if at == block and other != worker]
        for other in others:
            del self._arrived[other]
        self._arrived[worker] = block
        return bool(others), bool(others or (block in self._cases and self._cases[block].condemned))

    def suspects(self, worker: str, block: Hashable) -> list[str]:
        """Return the other workers that ran rows of the block and have not ended them, so they must have died."""
        return [other for other, hand in self._hands.items() if hand.block == block and other != worker]

    def judge(self, worker: str, block: Hashable, count: int) -> tuple[list[tuple[int, int]], dict[int, Reason]]:
        """Return how a block that may have killed a worker must run: its pieces and its poison rows.

        A piece is (start, stop), rows start <= n < stop of the block. A poison row must not run; it is mapped to its
        error type and message. `count` is the number of rows in the block.
        """
        case = self._cases.setdefault(block, _Case([_smaller(count)] * count))
        for other in self.suspects(worker, block):
            self._convict(case, self._hands.pop(other), self._explained.pop(other, None))
        pieces: list[tuple[int, int]] = []
        for row, size in enumerate(case.pieces):
            if row in case.condemned:
                continue
            start, stop = pieces[-1] if pieces else (0, 0)
            if stop == row and pieces and stop - start < size == case.pieces[start]:
                pieces[-1] = (start, row + 1)
            else:
                pieces.append((row, row + 1))
        return pieces, dict(case.condemned)

    @staticmethod
    def _convict(case: _Case, hand: HandBegun, explained: DeathExplained | None) -> None:
        size = hand.stop - hand.start
        if size > 1:
            case.pieces[hand.start : hand.stop] = [_smaller(size)] * size
            return
        case.deaths[hand.start] = case.deaths.get(hand.start, 0) + 1
        if (explained and explained.is_certain) or case.deaths[hand.start] >= DEATHS:
            case.condemned[hand.start] = explained.reason if explained else UNEXPLAINED


def _smaller(count: int) -> int:
    return max(1, -(-count // PIECES))
