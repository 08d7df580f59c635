"""Compare CSV files with Python's `csv`, which returns texts."""

import csv
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ours
import pyarrow.csv as pcsv
from judging import Refused
from kind import Kind, ends_in

from overnight.tasks.ingest.sources.csv import Csv

NULLS = set(pcsv.ConvertOptions().null_values)


def read(path: Path) -> list[Any]:
    """Return the rows as dicts."""
    return ours.values(Csv, path)


def by_csv(path: Path) -> Iterator[dict[str, str] | Refused]:
    """Yield the rows as texts, and `Refused` for a row with more or fewer fields than the header line."""
    csv.field_size_limit(2**30)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader)
        for row in filter(None, reader):
            if len(row) != len(header):
                yield Refused(f"expected {len(header)} fields, found {len(row)}")
                continue
            yield dict(zip(header, row, strict=True))


def differs(mine: dict[str, Any], other: dict[str, str]) -> str:
    """Return the first value that does not match its text."""
    if len(mine) != len(other):
        return f"expected columns {list(other)}, found {list(mine)}"
    for (name, value), text in zip(mine.items(), other.values(), strict=True):
        if not _says(text, value):
            return f"column {name}: expected {text!r:.200}, found {value!r:.200}"
    return ""


def _says(text: str, value: Any) -> bool:
    if value is None:
        return text.strip() in NULLS
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, datetime.datetime):
        return datetime.datetime.fromisoformat(text) == value
    return text == value.isoformat() if isinstance(value, datetime.date) else type(value)(text) == value


KIND = Kind(
    "CSV", ("csv-spectrum/csvs", "arrow-testing/data/csv", "parquet-testing"), ends_in(".csv"), read, by_csv, differs
)
