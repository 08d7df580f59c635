"""The names in a CSV file's header line, and errors in them. It reads no file."""

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.csv_types import inferred_type
from overnight.tasks.ingest.reading.table_blocks import repeated

# Delimiters, by their names in sentences.
DELIMITERS = {"a comma": ",", "a semicolon": ";", "a tab": "\t", "a bar": "|"}


def column_names(header: list[str]) -> list[str]:
    """Return the column names of a header line. A column without a name gets its number from 1 on: `column_3`."""
    return [name if name.strip() else f"column_{number}" for number, name in enumerate(header, 1)]


def repeated_headers(data: pa.Table) -> np.ndarray:
    """Return the positions (int64) of the rows that repeat the header line. A single column may have such a value."""
    positions = np.arange(len(data) * (data.num_columns > 1))
    for name, column in zip(data.column_names, data.columns, strict=True):
        is_name = pc.fill_null(pc.equal(column.take(pa.array(positions)), name), False)
        positions = positions[is_name.to_numpy()]
    return positions


def refusal(columns: list[str], usual: list[str]) -> RowError | None:
    """Return the error of a file that shares no column with the `usual` ones, if any, or has a column twice."""
    if doubles := repeated(columns):
        return RowError(f"expected each column once in the header line, found several named {doubles}")
    if not usual or not columns or set(columns) & set(usual):
        return None
    reason = f"expected the columns {', '.join(usual)}, found {', '.join(columns)}"
    if hint := other_delimiter(columns):
        return RowError(f"{reason}; {hint}")
    if len(columns) == len(usual):
        reason += "; if the file has no header line, keep it apart and set source.column_names"
    return RowError(reason)


def alike(files: list[tuple[str, pa.Table]]) -> list[tuple[str, pa.Table]]:
    """Return the largest group of files that share column names, in the order of `files`: (path, first rows).

    A file of another table is left out, even if it comes first, and so is a file with a repeated name.
    """
    columns = [text.column_names for _, text in files]
    groups: list[list[int]] = []  # of positions in `files`
    for position, names in enumerate(columns):
        if refusal(names, []):
            continue
        own_group, other_groups = [position], []
        for group in groups:
            if any(not refusal(names, columns[member]) for member in group):
                own_group += group
            else:
                other_groups.append(group)
        groups = [*other_groups, own_group]
    largest = max(groups, key=lambda group: (len(group), -min(group)), default=[])
    return [files[position] for position in sorted(largest)]


def other_delimiter(columns: list[str]) -> str:
    """Return a sentence that suggests another delimiter, if a single column is named such as `a;b`; otherwise empty."""
    if len(columns) != 1:
        return ""
    name = columns[0]
    words = max(DELIMITERS, key=lambda words: name.count(DELIMITERS[words]))
    if (mark := DELIMITERS[words]) not in name:
        return ""
    return f"one column is named {name[:200]!r}: if {words} separates the columns, set source.delimiter to {mark!r}"


def doubts(path: str, text: pa.Table) -> Iterator[str]:
    """Yield warnings if the header line of a file, with the first rows `text`, looks like a row or is one name."""
    if hint := other_delimiter(text.column_names):
        yield f"{path}: {hint}."
    if _looks_like_values(text):
        yield (
            f"{path}: the header line looks like a row: {', '.join(text.column_names)}. If the files have no header "
            "line, set source.column_names."
        )


def _looks_like_values(text: pa.Table) -> bool:
    """Return True if the name of each column that is not text is a value of the column's type. A year is a name."""
    numbers = (pa.int64(), pa.float64())
    names = []
    for name in text.column_names:
        kind = inferred_type(text[name])
        if pa.types.is_string(kind):
            continue
        own = inferred_type(pa.chunked_array([[name]]))
        if own != kind and not (own in numbers and kind in numbers):
            return False
        names.append(name)
    return not all(re.fullmatch("(19|20)[0-9]{2}", name) for name in names)
