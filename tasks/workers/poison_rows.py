"""Which row kills its worker: how a crash, a hang or an out-of-memory kill is traced to one row.

A worker that comes upon rows which may have killed another says beforehand which of them it takes in hand. When the
same block comes back from another worker, the one that had them in hand died of it, or with it. Those rows then go in
pieces a `PIECES`th as large, until one stands alone. A row is condemned, and quarantined without another try, when
`DEATHS` workers died with it alone in hand, or one ended itself because of it and is certain.

A block is known by any name that stays the same when Ray runs it again; rows by their place in it. Nothing is kept of
blocks that killed nobody. This file knows nothing of Ray.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

PIECES = 16
DEATHS = 2

Reason = tuple[str, str]  # error type and message
UNEXPLAINED: Reason = (
    "WorkerDied",
    f"{DEATHS} workers died with this row alone in hand: a segmentation fault, an out-of-memory kill or the like",
)


@dataclass
class _Hand:
    """What a worker has in hand: rows `start` to `stop` of a block; and why it is about to end itself, if it is."""

    block: Hashable
    start: int
    stop: int
    reason: Reason = UNEXPLAINED
    is_certain: bool = False


@dataclass
class _Case:
    """A block that may hold a killer: the largest piece (rows) that each of its rows may run in, and the deaths."""

    pieces: list[int]
    deaths: dict[int, int] = field(default_factory=dict)
    condemned: dict[int, Reason] = field(default_factory=dict)


class PoisonRowTracker:
    """The record of one run."""

    def __init__(self) -> None:
        self._hands: dict[str, _Hand] = {}  # by worker
        self._arrived: dict[str, Hashable] = {}  # by worker: the block it is at
        self._cases: dict[Hashable, _Case] = {}

    def arrive(self, worker: str, block: Hashable) -> tuple[bool, bool]:
        """Notes that a worker begins a block.

        Returns whether another began it and never left, and so died of it or at it; and whether care is due, because of
        that or because a killer in it is known.
        """
        others = [other for other, at in self._arrived.items() if at == block and other != worker]
        for other in others:
            del self._arrived[other]
        self._arrived[worker] = block
        return bool(others), bool(others or (block in self._cases and self._cases[block].condemned))

    def leave(self, worker: str) -> None:
        self._arrived.pop(worker, None)

    def judge(self, worker: str, block: Hashable, count: int) -> tuple[list[tuple[int, int]], dict[int, Reason]]:
        """How to run a suspicious block of `count` rows: (start, stop) of each piece, and the condemned rows."""
        case = self._cases.setdefault(block, _Case([_smaller(count)] * count))
        for other in [other for other, hand in self._hands.items() if hand.block == block and other != worker]:
            self._convict(case, self._hands.pop(other))
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

    def begin(self, worker: str, block: Hashable, start: int, stop: int) -> None:
        """Notes what the worker has in hand from now on."""
        self._hands[worker] = _Hand(block, start, stop)

    def end(self, worker: str) -> None:
        self._hands.pop(worker, None)

    def explain(self, worker: str, reason: Reason, is_certain: bool) -> None:
        """Notes why a worker is about to end itself; whether a row alone in its hand is certainly to blame."""
        if hand := self._hands.get(worker):
            hand.reason, hand.is_certain = reason, is_certain

    @staticmethod
    def _convict(case: _Case, hand: _Hand) -> None:
        size = hand.stop - hand.start
        if size > 1:
            case.pieces[hand.start : hand.stop] = [_smaller(size)] * size
            return
        case.deaths[hand.start] = case.deaths.get(hand.start, 0) + 1
        if hand.is_certain or case.deaths[hand.start] >= DEATHS:
            case.condemned[hand.start] = hand.reason


def _smaller(count: int) -> int:
    return max(1, -(-count // PIECES))
