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
    """The skipped files by reason: the number of `files`, and the first `names`, as in the receipt.

    For example, `found` is `{"FIFO": {"files": 1, "names": ["pipe.csv"]}}`.
    """

    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, reason: str, path: str) -> None:
        """Count one file that is skipped for `reason`, and keep its path if it is among the first of this reason."""
        of_reason = self.found.setdefault(reason, {"files": 0, "names": []})
        of_reason["files"] += 1
        if len(of_reason["names"]) < NAMES_TOLD:
            of_reason["names"].append(shown(path))


@contextlib.contextmanager
def counting() -> Iterator[PassedOver]:
    """Count the files that listings in the body skip. Yield the counts, which grow meanwhile."""
    passed = PassedOver()
    token = _counting.set(passed)
    try:
        yield passed
    finally:
        _counting.reset(token)


def pass_over(reason: str, path: str) -> None:
    """Count a file that a listing skips for `reason`. `path` is relative to the listed place.

    Outside of `counting`, do nothing.
    """
    if passed := _counting.get():
        passed.add(reason, path)


def told_so_far() -> str:
    """Return number and some names of skipped files as one line, in the current `counting`: `7 files; FIFO: pipe.csv`.

    It is an empty string if no file was skipped, and outside of `counting`.
    """
    return told(passed.found) if (passed := _counting.get()) else ""


def shown(path: str) -> str:
    r"""Return a name as a text that UTF-8 can represent. Other bytes are escaped: `caf\xe9.png`."""
    return os.fsencode(path).decode(errors="backslashreplace")


def told(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the number of skipped files and some names as one line, or an empty string if no file was skipped.

    For example `7 files; FIFO: pipe.csv; unknown extension: 0.txt, 1.txt and 4 more`. `found` is the field of
    `PassedOver`.
    """
    if not found:
        return ""
    total = sum(of_reason["files"] for of_reason in found.values())
    parts = [f"{total:,} {'file' if total == 1 else 'files'}"]
    for reason, of_reason in sorted(found.items()):
        more = of_reason["files"] - len(of_reason["names"])
        parts.append(f"{reason}: {', '.join(of_reason['names'])}" + (f" and {more:,} more" if more else ""))
    return "; ".join(parts)


def is_hidden(path: str, pattern: Pattern | None) -> bool:
    """Return True if a name in `path` begins with `_` or `.`, unless such a name in `pattern` matches it."""
    return pattern.is_hidden(path) if pattern else path[0] in HIDDEN or "/_" in path or "/." in path


def reason_to_skip(path: str, entry: Entry, extensions: tuple[str, ...], pattern: Pattern | None = None) -> str:
    """Return the reason to skip a file of a listing, or an empty string for an input.

    The name of an input ends in one of `extensions`, or in anything if there are none. No name in its path begins with
    `_` or `.`, unless such a name in `pattern` matches it.
    """
    if is_hidden(path, pattern):
        return "name that begins with _ or ."
    if entry.no_file:
        return entry.no_file
    if extensions and not path.lower().endswith(extensions):
        return "unknown extension"
    return "" if is_text(path) else "name that is not UTF-8"
