"""What a listing passes over: counted by reason, some of each named, so that nothing is left out in silence.

Whoever wants to know lists inside `counting`; who passes something over need not know whether anybody does.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.storage.file_info import Entry, is_text

NAMES_TOLD = 5

_counting: ContextVar["PassedOver | None"] = ContextVar("passed_over", default=None)


@dataclass
class PassedOver:
    """`found`: by reason the number of `files` and the first `names`, as the receipt has them."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, reason: str, path: str) -> None:
        of_reason = self.found.setdefault(reason, {"files": 0, "names": []})
        of_reason["files"] += 1
        if len(of_reason["names"]) < NAMES_TOLD:
            of_reason["names"].append(shown(path))


@contextlib.contextmanager
def counting() -> Iterator[PassedOver]:
    """Gathers what is passed over while the body runs."""
    passed = PassedOver()
    token = _counting.set(passed)
    try:
        yield passed
    finally:
        _counting.reset(token)


def pass_over(reason: str, path: str) -> None:
    """Counts a file that is no input; `path`: below the place that is listed."""
    if passed := _counting.get():
        passed.add(reason, path)


def told_so_far() -> str:
    """What is counted at this place of a listing, as `told` tells it; empty where nobody counts."""
    return told(passed.found) if (passed := _counting.get()) else ""


def shown(path: str) -> str:
    """A name that can be written as UTF-8, whatever bytes it is of: `caf\\xe9.png`."""
    return os.fsencode(path).decode(errors="backslashreplace")


def told(found: Mapping[str, Mapping[str, Any]]) -> str:
    """In a line: `7 files; FIFO: pipe.csv; unknown extension: 0.txt, 1.txt and 4 more`; empty where there are none."""
    if not found:
        return ""
    total = sum(of_reason["files"] for of_reason in found.values())
    parts = [f"{total:,} {'file' if total == 1 else 'files'}"]
    for reason, of_reason in sorted(found.items()):
        more = of_reason["files"] - len(of_reason["names"])
        parts.append(f"{reason}: {', '.join(of_reason['names'])}" + (f" and {more:,} more" if more else ""))
    return "; ".join(parts)


def reason_to_skip(path: str, entry: Entry, extensions: tuple[str, ...]) -> str:
    """Why what a listing found at `path` is passed over; empty for an input."""
    if path[0] in "_." or "/_" in path or "/." in path:
        return "name that begins with _ or ."
    if entry.no_file:
        return entry.no_file
    if extensions and not path.lower().endswith(extensions):
        return "unknown extension"
    return "" if is_text(path) else "name that is no UTF-8"
