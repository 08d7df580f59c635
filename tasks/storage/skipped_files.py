"""The files that a listing skips: counted by reason, with a few names each, so that no file is left out in silence.

A caller that needs the counts lists inside `counting`. Outside of `counting`, `pass_over` counts nothing.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.storage.file_info import Entry, is_text
from overnight.tasks.storage.globs import HIDDEN, Pattern

NAMES_TOLD = 5

_counting: ContextVar["PassedOver | None"] = ContextVar("passed_over", default=None)


@dataclass
class PassedOver:
    """The skipped files by reason, as in the receipt: `{"FIFO": {"files": 1, "names": ["pipe.csv"]}}`."""

    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, reason: str, path: str) -> None:
        """Count one file that is skipped for `reason`, and keep its path if it is among the first of this reason."""
        group = self.found.setdefault(reason, {"files": 0, "names": []})
        group["files"] += 1
        if len(group["names"]) < NAMES_TOLD:
            group["names"].append(shown(path))


@contextlib.contextmanager
def counting() -> Iterator[PassedOver]:
    """Count the files that listings in the body skip. Yield the counts, which grow meanwhile."""
    passed_over = PassedOver()
    token = _counting.set(passed_over)
    try:
        yield passed_over
    finally:
        _counting.reset(token)


def pass_over(reason: str, path: str) -> None:
    """Count a file that a listing skips for `reason`, inside of `counting`."""
    if counts := _counting.get():
        counts.add(reason, path)


def told_so_far() -> str:
    """Return `told` of the files that were skipped in the current `counting`."""
    counts = _counting.get()
    return told(counts.found) if counts else ""


def shown(path: str) -> str:
    r"""Return a name as a text that UTF-8 can represent. Other bytes are escaped: `caf\xe9.png`."""
    return os.fsencode(path).decode(errors="backslashreplace")


def told(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return number and names of `PassedOver.found` as one line, `7 files; FIFO: pipe.csv`; empty without files."""
    if not found:
        return ""
    total = sum(group["files"] for group in found.values())
    parts = [f"{total:,} {'file' if total == 1 else 'files'}"]
    for reason, group in sorted(found.items()):
        more = group["files"] - len(group["names"])
        parts.append(f"{reason}: {', '.join(group['names'])}" + (f" and {more:,} more" if more else ""))
    return "; ".join(parts)


def is_hidden(path: str, pattern: Pattern | None) -> bool:
    """Return True if a name in `path` begins with `_` or `.`, unless such a name in `pattern` matches it."""
    if pattern:
        return pattern.is_hidden(path)
    return path[0] in HIDDEN or "/_" in path or "/." in path


def reason_to_skip(path: str, entry: Entry, extensions: tuple[str, ...], pattern: Pattern | None = None) -> str:
    """Return the reason to skip a file of a listing, or an empty string for an input."""
    if is_hidden(path, pattern):
        return "name that begins with _ or ."
    if entry.special_kind:
        return entry.special_kind
    if extensions and not path.lower().endswith(extensions):
        return "unknown extension"
    return "" if is_text(path) else "name that is not UTF-8"
