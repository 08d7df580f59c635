"""Compare the rows that Overnight reads from a file with those of a reference reader, one by one."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

SAME, DIFFERENT, CRASH = "same", "different", "crashes"
BY_BOTH, BY_US_ONLY, READ_BY_US_ONLY = "refused by both", "refused by us only", "read by us only"
MISSING = object()
OUTCOMES = (SAME, DIFFERENT, BY_BOTH, BY_US_ONLY, READ_BY_US_ONLY, CRASH)


class Refused(NamedTuple):
    """A row that a reader refuses, with the reason."""

    reason: str


class Broken(NamedTuple):
    """The rest of a file that a reader cannot read, with the reason."""

    reason: str


@dataclass
class Found:
    """The results for one kind of file. `notes`: file and row, outcome and reason, except those of equal rows."""

    files: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, name: str, outcome: str, reason: str = "") -> None:
        """Count the outcome of a row."""
        self.counts[outcome] += 1
        if outcome != SAME:
            self.notes.append((name, outcome, reason))


def judge(ours: Sequence[Any], theirs: Sequence[Any], differs: Callable[[Any, Any], str]) -> Iterator[tuple[str, str]]:
    """Yield the outcome of each row, and its reason. A row that only one side has is different, so that none is lost.

    Args:
        ours: All rows of a file, each a value or `Refused`.
        theirs: The rows of the reference. `Broken` is the last one if the reference reads no further.
        differs: Returns how two values differ, or an empty text.
    """
    broken = theirs[-1] if theirs and isinstance(theirs[-1], Broken) else None
    known = theirs[:-1] if broken else theirs
    if broken and not ours and not known:
        yield READ_BY_US_ONLY, f"as a file without rows; the reference: {broken.reason}"
    for mine, other in zip_longest(ours, known, fillvalue=broken or MISSING):
        is_refused, is_refused_there = isinstance(mine, Refused), isinstance(other, Refused | Broken)
        if is_refused and is_refused_there:
            yield BY_BOTH, mine.reason
        elif is_refused_there and mine is not broken:
            yield READ_BY_US_ONLY, f"the reference: {other.reason}"
        elif other is MISSING:
            yield DIFFERENT, f"a row that the reference does not have: {mine!r:.200}"
        elif mine is MISSING or mine is broken:
            yield DIFFERENT, f"the row is missing: {other!r:.200}"
        elif is_refused:
            yield BY_US_ONLY, mine.reason
        else:
            difference = differs(mine, other)
            yield (DIFFERENT, difference) if difference else (SAME, "")


def unlike(ours: Any, theirs: Any) -> str:
    """Return how two Python values differ: NaN equals NaN, but 1 differs from 1.0 and True."""
    return "" if is_like(ours, theirs) else f"expected {theirs!r:.300}, found {ours!r:.300}"


def is_like(ours: Any, theirs: Any) -> bool:
    """Return True if two Python values have the same type and are equal, including all values inside them."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, float):
        both_zero = ours == theirs == 0
        return (math.isnan(ours) and math.isnan(theirs)) or (
            ours == theirs and (not both_zero or math.copysign(1, ours) == math.copysign(1, theirs))
        )
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(is_like(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(is_like, ours, theirs))
    return bool(ours == theirs)
