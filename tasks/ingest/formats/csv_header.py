"""The names in a CSV file's header line, and errors in them. It reads no file."""

import re
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.csv_types import inferred_type

# Delimiters, by their names in sentences.
DELIMITERS = {"a comma": ",", "a semicolon": ";", "a tab": "\t", "a bar": "|"}


def named(header: list[str]) -> list[str]:
    """Return the column names of a header line. A column without a name gets its number from 1 on: `column_3`."""
    return [name if name.strip() else f"column_{place}" for place, name in enumerate(header, 1)]


def headers(data: pa.Table) -> np.ndarray:
    """Return the positions (int64) of the rows of `data` that repeat the header line.

    The result is empty for a table of one column, because there the column's name may be a value.
    """
    places = np.arange(len(data) if data.num_columns > 1 else 0)
    for name, column in zip(data.column_names, data.columns, strict=True):
        if not len(places):
            break
        places = places[pc.fill_null(pc.equal(column.take(pa.array(places)), name), False).to_numpy()]
    return places


def refusal(found: list[str], known: list[str]) -> RowError | None:
    """Return the error of a file whose columns `found` do not fit the columns `known` of the other files, or None.

    They do not fit if a name occurs twice in `found`, or if no name is in both. If `known` is empty, only a repeated
    name is an error.
    """
    if double := sorted({name for name in found if found.count(name) > 1}):
        return RowError(f"expected each column once in the header line, found several named {', '.join(double)}")
    if not known or not found or set(found) & set(known):
        return None
    reason = f"expected the columns {', '.join(known)}, found {', '.join(found)}"
    if hint := other_delimiter(found):
        return RowError(f"{reason}; {hint}")
    if len(found) == len(known):
        reason += "; if the file has no header line, keep it apart and set source.column_names"
    return RowError(reason)


def alike(files: list[tuple[str, pa.Table]]) -> list[tuple[str, pa.Table]]:
    """Return the largest group of files that have column names in common, in the order of `files`.

    `files` are pairs of a path and the file's first rows. A file belongs to a group if it shares a name with any file
    there. So a file of another table is left out, even if it comes first, and so is a file with a repeated name. Of
    groups of equal size, return the one with the earliest file.
    """
    columns = [text.column_names for _, text in files]
    groups: list[list[int]] = []  # of positions in `files`
    for place, (_, text) in enumerate(files):
        if refusal(text.column_names, []):
            continue
        mine = [group for group in groups if any(not refusal(text.column_names, columns[of]) for of in group)]
        groups = [group for group in groups if group not in mine] + [[*chain(*mine), place]]
    largest = max(groups, key=lambda group: (len(group), -min(group)), default=[])
    return [files[place] for place in sorted(largest)]


def other_delimiter(found: list[str]) -> str:
    """Return a sentence that suggests another delimiter, or an empty text if there is no sign of one.

    `found` are the names of a file's columns. The sign is a single column whose name contains a delimiter, such as
    `a;b`.
    """
    name = found[0] if len(found) == 1 else ""
    words = max(DELIMITERS, key=lambda words: name.count(DELIMITERS[words]))
    if (mark := DELIMITERS[words]) not in name:
        return ""
    return f"one column is named {name[:200]!r}: if {words} separates the columns, set source.delimiter to {mark!r}"


def doubts(path: str, text: pa.Table, column_names: list[str] | None) -> Iterator[str]:
    """Yield warnings if the header line of the file at `path` looks like a row, or was split at a wrong delimiter.

    `text` has the first rows of this file, whose columns become those of all files. If `column_names` is set, the files
    have no header line, and there are no warnings.
    """
    if column_names:
        return
    if hint := other_delimiter(text.column_names):
        yield f"{path}: {hint}."
    if _looks_like_values(text):
        yield (
            f"{path}: the header line looks like a row: {', '.join(text.column_names)}. If the files have no header "
            "line, set source.column_names."
        )


def _looks_like_values(text: pa.Table) -> bool:
    """Return True if the name of each column that is not text is a value of the column's type. A year is a name."""
    kinds = {name: inferred_type(text[name]) for name in text.column_names}
    typed = {name: kind for name, kind in kinds.items() if not pa.types.is_string(kind)}
    numbers = (pa.int64(), pa.float64())
    for name, kind in typed.items():
        own = inferred_type(pa.chunked_array([[name]]))
        if own != kind and not (own in numbers and kind in numbers):
            return False
    return bool(typed) and not all(re.fullmatch("(19|20)[0-9]{2}", name) for name in typed)
