"""The description of a kind of file: its corpora, Overnight's reader, and the reference reader."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import judging


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    ours: Returns all rows of a file, each a value or `Refused`. reference: Yields the rows, or raises an error.
    choose: Returns True if a file of these corpora belongs to the kind. reader: The reference's module.
    """

    name: str
    corpora: tuple[str, ...]
    choose: Callable[[Path], bool]
    ours: Callable[[Path], list[Any]]
    reference: Callable[[Path], Iterator[Any]]
    differs: Callable[[Any, Any], str] = judging.unlike
    reader: str = "json"


def ends_in(*extensions: str) -> Callable[[Path], bool]:
    """Return a function that is true for files with one of these extensions, in lower or upper case."""
    return lambda path: path.name.lower().endswith(extensions)


def rows_of(reference: Callable[[Path], Iterator[Any]], path: Path) -> list[Any]:
    """Return the rows of the reference, with `Broken` at the end if it raises an error."""
    found = []
    try:
        for row in reference(path):
            found.append(row)
    except Exception as error:
        found.append(judging.Broken(f"{type(error).__name__}: {error}"))
    return found
