"""Which schedules are played: all single faults, all double faults of two runs, and drawn ones of three runs.

A pause of A at its operation k, while B makes m operations, is the schedule (k, m): a search bounded to two
preemptions, as in stateless model checking. Two schedules are equal if they differ only in the order of operations
that do not depend on each other: neither is a change, or they are apart in the tree of paths. Only one of those is
played. A death matters only before a change, because a look leaves nothing.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.simulator.world import Fault, Operation, Segment

FAULTS = {
    "one death": "A dies at each of its changes",
    "an error": "each operation of A fails once, before it is done or after",
    "a pause": "A is frozen at each of its operations, B takes over and ends, A goes on",
    "two deaths": "A dies, and B dies at each of its changes while it repairs and goes on",
    "two pauses": "A is frozen, B is frozen at each of its operations, A goes on to its end, then B",
    "a pause and a death": "A is frozen, B takes over and dies at each of its changes, A goes on",
    "drawn, three runs": "three runs with drawn pauses, deaths and errors, by seed",
}
SINGLE = ("one death", "an error", "a pause")
DRAWN = "drawn, three runs"
DRAWN_AT_ONCE = 2000
OF_TWO = 6  # a share of double faults has one of so many operations of B


@dataclass(frozen=True)
class Played:
    """A schedule with the operations that were made in it."""

    schedule: tuple[Segment, ...]
    trace: list[Operation]

    def of(self, process: str) -> list[Operation]:
        return [operation for operation in self.trace if operation.process == process]


Play = Callable[[Sequence[Segment]], Played]


def schedules(play: Play, fault: str, share: int = 1, drawn: int = 0) -> Iterator[Played]:
    """Play the schedules of a fault in `FAULTS`, or a `share`-th of those of two faults; `drawn` is a seed."""
    if fault == DRAWN:
        yield from drawn_schedules(play, drawn, max(DRAWN_AT_ONCE // share, 4))
        return
    whole = play([Segment("A")])
    yield whole
    for k, operation in enumerate(whole.of("A")):
        if not _is_drawn(share / OF_TWO, k):
            continue
        if fault == "one death" and operation.is_change:
            yield play([Segment("A", k, "dies")])
        if fault == "an error":
            yield play([Segment("A", k, "raises before"), Segment("A")])
            yield play([Segment("A", k, "raises after"), Segment("A")])
        if fault == "a pause":
            yield play([Segment("A", k), Segment("B"), Segment("A")])
        if fault == "two deaths" and operation.is_change:
            yield from _two_deaths(play, k, share)
        if fault in ("two pauses", "a pause and a death"):
            yield from _while_frozen(play, k, "dies" if fault == "a pause and a death" else "", share)


def _is_drawn(share: float, *operations: int) -> bool:
    """Return True for one of so many operations, always the same ones."""
    return share <= 1 or random.Random(str(operations)).random() * share < 1


def _two_deaths(play: Play, k: int, share: int) -> Iterator[Played]:
    successor = play([Segment("A", k, "dies"), Segment("B")]).of("B")
    for m, operation in enumerate(successor):
        if operation.is_change and _is_drawn(min(share, OF_TWO), k, m):
            yield play([Segment("A", k, "dies"), Segment("B", m, "dies")])


def _while_frozen(play: Play, k: int, fault: Fault, share: int) -> Iterator[Played]:
    """Play what B does while A is frozen before its operation k: B makes m operations, and is frozen or dies."""
    alone = play([Segment("A", k), Segment("B"), Segment("A")])
    frozen, operations = alone.of("A")[k:], alone.of("B")
    if not frozen:
        return
    begin = next((m for m, operation in enumerate(operations) if frozen[0].depends_on(operation)), len(operations)) + 1
    last: Played | None = None
    for m in range(begin, len(operations)):
        if (fault and not operations[m].is_change) or not _is_drawn(min(share, OF_TWO), k, m):
            continue
        if not fault and last and share == 1 and not _is_other(last, k, m):
            continue
        last = play([Segment("A", k), Segment("B", m, fault), Segment("A"), Segment("B")])
        yield last


def _is_other(last: Played, k: int, m: int) -> bool:
    """Return True if it matters that B makes one operation more before A goes on than in the `last` schedule."""
    operations = last.of("B")
    return m > len(operations) or any(operations[m - 1].depends_on(later) for later in last.of("A")[k:])


def drawn_schedules(play: Play, seed: int, count: int, processes: Sequence[str] = ("A", "B", "C")) -> Iterator[Played]:
    """Play schedules whose turns, deaths and errors are drawn by the seed."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        segments = []
        for _ in range(chance.randint(3, 9)):
            fault: Fault = chance.choices(("", "dies", "raises before", "raises after"), (7, 1, 1, 1))[0]
            segments.append(Segment(chance.choice(processes), int(chance.expovariate(1 / 40)), fault))
        yield play([*segments, *map(Segment, chance.sample(processes, len(processes)))])
