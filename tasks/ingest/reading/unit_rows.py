"""Makes units of the parts of files, and reads the rows of a unit.

The rows of a unit are counted when its file is listed, or while it is read. A source defines the parts: it returns the
parts of a file, and reads the tables of a part.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.reading.table_blocks import (
    finish_text_file,
    is_corrupt_file,
    quarantined_rows,
    rest_of_unit,
    table_block,
    unreadable,
    untrue_values,
)
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.storage.location import File

FILES_AT_ONCE = 16
BROKEN = -1  # the row_group of a file whose parts are unknown: such a file is one row


class RowRange(NamedTuple):
    """Consecutive rows of a file, which become a unit. `first_row` counts from 0, and `rows` is their number.

    The source finds the rows by `number`, such as the index of a row group. `size` is in bytes, approximate.
    """

    first_row: int
    rows: int
    number: int
    size: int


class Judged(NamedTuple):
    """Rows as a table, and the errors of the bad rows in the table, by position."""

    data: pa.Table
    errors: dict[int, Exception]


def counted_units(files: list[File], parts: Callable[[File], Sequence[RowRange]]) -> pa.Table:
    """Return the units of `files` (schema `manifest.UNITS`), in the order of the files.

    `parts` returns the parts of one file. Each part that has rows becomes a unit. A file that cannot be opened becomes
    a unit of one row.
    """

    def found(file: File) -> Sequence[RowRange]:
        try:
            return [part for part in parts(file) if part.rows]
        except Exception as error:
            if not is_corrupt_file(error):
                raise
            return [RowRange(0, 1, BROKEN, file.size)]

    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        all_parts = list(pool.map(found, files))
    records = [
        (file.path, file.uri, part.size, file.version, part.first_row, part.rows, part.number)
        for file, some in zip(files, all_parts, strict=True)
        for part in some
    ]
    columns: list[Any] = list(zip(*records, strict=True)) if records else [[]] * 7
    return pa.table([range(len(records)), *columns], schema=UNITS)


def counted_rows(unit: dict, tables: Iterator[pa.Table | Judged]) -> Iterator[pa.Table]:
    """Yield blocks of the rows of a unit whose number of rows is in the manifest. `tables` yields its rows in order.

    `unit` is a row of the manifest. If `tables` ends early or raises an error about the file, the missing rows are
    quarantined. If the file was broken when it was listed, the unit is one row, which is quarantined with that error.
    """
    done = 0
    if unit["row_group"] == BROKEN:
        passed = RowError(
            "the file could not be read when it was listed, and can be now; a run with force lists it again"
        )
        yield from unreadable(unit, _raised(tables) or passed)
        return
    damage: Exception | None = None
    try:
        for found in tables:
            judged = _first(found, unit["rows"] - done)
            yield from _judged_blocks(unit, unit["first_row"] + done, judged)
            done += len(judged.data)
            if done == unit["rows"]:
                break
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        damage = error
    missing = RowError(f"expected {unit['rows']:,} rows in this part of the file, as it declares, found {done:,}")
    yield from rest_of_unit(unit, unit["first_row"] + done, unit["first_row"] + unit["rows"], damage or missing)


def uncounted_rows(unit: dict, tables: Iterator[pa.Table | Judged]) -> Iterator[pa.Table]:
    """Yield blocks of the rows of a unit whose file does not state its number of rows.

    `unit` is a row of the manifest. `tables` yields its rows in order. If it raises an error about the file, all later
    rows are one quarantined row. If the manifest has no number of rows either, an END row, which states it, comes last.
    """
    count, damage = 0, None
    try:
        for found in tables:
            most = None if unit["rows"] is None else unit["rows"] - count
            judged = _first(found, most)
            yield from _judged_blocks(unit, count, judged)
            count += len(judged.data)
            if count == unit["rows"]:
                break
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        damage = error
    yield from finish_text_file(unit, count, damage)


def _first(found: pa.Table | Judged, most: int | None) -> Judged:
    """Return at most `most` rows of `found`, with the errors of values that are invalid for their types."""
    data, errors = found if isinstance(found, Judged) else (found, {})
    data = data[:most] if most is not None else data
    return Judged(data, untrue_values(data) | {i: error for i, error in errors.items() if i < len(data)})


def _judged_blocks(unit: dict, first: int, judged: Judged) -> Iterator[pa.Table]:
    """Yield the blocks of consecutive rows of a file. `first` is the number of the first of them."""
    data, errors = judged
    numbers = first + np.arange(len(data))
    if errors:
        yield quarantined_rows(unit, numbers[list(errors)].tolist(), list(errors.values()))
        good = np.delete(np.arange(len(data)), list(errors))
        numbers, data = numbers[good], data.take(good)
    if len(data):
        yield table_block(unit, numbers, data)


def _raised(tables: Iterator[Any]) -> Exception | None:
    try:
        next(tables, None)
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        return error
    return None
