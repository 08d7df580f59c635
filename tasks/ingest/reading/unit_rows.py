"""Makes units of files and of their parts, and blocks of the rows that a source reads from a unit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import BROKEN_OFF, RowError
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file
from overnight.tasks.ingest.reading.table_blocks import (
    BYTES_AT_ONCE,
    end_of_unit,
    quarantined_rows,
    rest_of_unit,
    table_block,
    unreadable,
)
from overnight.tasks.ingest.versioned_file import SourceChanged, SourceVanished
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.storage.location import File

T = TypeVar("T")
FILES_AT_ONCE = 16
BROKEN = -1  # the row_group of a file whose parts are unknown: such a file is one row


class RowRange(NamedTuple):
    """Consecutive rows of a file, which become a unit. The source finds them by `number`, such as a row group's index.

    `size` is in bytes, approximate.
    """

    first_row: int
    rows: int
    number: int | None
    size: int


class Judged(NamedTuple):
    """Rows as a table, and the errors of the bad rows in the table, by position."""

    data: pa.Table
    errors: Mapping[int, Exception]


def counted_units(files: list[File], parts: Callable[[File], Sequence[RowRange]]) -> pa.Table:
    """Return a unit for each part of `files` that has rows. A file that cannot be opened is a unit of one row."""

    def parts_with_rows(file: File) -> Sequence[RowRange]:
        try:
            return [part for part in parts(file) if part.rows]
        except Exception as error:
            if not is_corrupt_file(error):
                raise
            return [RowRange(0, 1, BROKEN, file.size)]

    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        ranges = list(pool.map(parts_with_rows, files))
    units = []
    for file, parts_of_file in zip(files, ranges, strict=True):
        for part in parts_of_file:
            units.append((file, part.size, part.first_row, part.rows, part.number))
    return _table_of_units(units)


def file_units(files: list[File], rows: Iterable[int | None] = repeat(None)) -> pa.Table:
    """Return one unit per file. `rows` has the number of rows of each; None if only reading shows it."""
    return _table_of_units((file, file.size, 0, count, None) for file, count in zip(files, rows, strict=False))


def _table_of_units(parts: Iterable[tuple[File, int, int, int | None, int | None]]) -> pa.Table:
    units: list[tuple] = []
    for file, size, *row_range in parts:
        units.append((len(units), file.path, file.uri, size, file.version, *row_range))
    columns: list[Any] = list(zip(*units, strict=True)) or [[]] * len(UNITS)
    return pa.table(columns, schema=UNITS)


def unit_blocks(unit: dict, tables: Iterator[pa.Table | Judged]) -> Iterator[pa.Table]:
    """Yield blocks of the rows of a unit, which `tables` yields in order. Missing rows are quarantined."""
    if unit["row_group"] == BROKEN:
        yield from unreadable(unit, _error_of(tables))
        return
    first, total = unit["first_row"], unit["rows"]
    count, damage = 0, None
    try:
        for table in tables:
            piece = table if isinstance(table, Judged) else Judged(table, {})
            if total is not None:
                piece = Judged(piece.data[: total - count], piece.errors)
            yield from _judged_blocks(unit, first + count, piece)
            count += len(piece.data)
            if count == total:
                return
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        damage = error
    if unit["row_group"] is None:
        yield from finish_file(unit, count, damage)
    else:
        missing = RowError(f"expected {total:,} rows in this part of the file, as it declares, found {count:,}")
        yield from rest_of_unit(unit, first + count, first + total, damage or missing)


def finish_file(unit: dict, count: int, damage: Exception | None) -> Iterator[pa.Table]:
    """Yield the last blocks of a file that ended after `count` rows, or in `damage`."""
    if damage and not count and unit["rows"] in (None, 1):
        yield from unreadable(unit, damage)
        return
    stop = unit["rows"]
    if stop is None:
        stop = count + bool(damage)
    if isinstance(damage, SourceChanged | SourceVanished):
        error: Exception = damage
    elif damage:
        error = RowError(f"{BROKEN_OFF}: {error_message(damage)}")
    else:
        error = RowError("the file ends before this row")
    yield from rest_of_unit(unit, count, stop, error)
    yield from end_of_unit(unit, stop)


def chunks(items: Iterable[T], rows: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items as lists of at most `rows` items, cut at `BYTES_AT_ONCE`. An error comes after the last list."""
    chunk: list[T] = []
    size = 0
    try:
        for item in items:
            chunk.append(item)
            size += size_of(item)
            if len(chunk) == rows or size >= BYTES_AT_ONCE:
                yield chunk
                chunk, size = [], 0
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def judged_rows(items: Iterable[T], row_of: Callable[[T], dict]) -> tuple[list[dict], dict[int, Exception]]:
    """Return the row of each item, and by position the `RowError` of an item without one, whose row is empty."""
    rows: list[dict] = []
    errors: dict[int, Exception] = {}
    for position, item in enumerate(items):
        row = {}
        try:
            row = row_of(item)
        except RowError as error:
            errors[position] = error
        rows.append(row)
    return rows, errors


def without_error(item: T | RowError) -> T:
    """Return the item. Raise the error that is in its place."""
    if isinstance(item, RowError):
        raise item
    return item


def size_of(item: bytes | Exception) -> int:
    """Return the number of bytes of an item; 0 for an error."""
    if isinstance(item, bytes):
        return len(item)
    return 0


def values_of(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the value of each row under `name`; None if the row lacks it."""
    return [row.get(name) for row in rows]


def table_of(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Return a column of each of `kinds`, with null where a row lacks its name."""
    columns = {name: pa.array(values_of(rows, name), kind) for name, kind in kinds.items()}
    return with_columns(len(rows), columns)


def with_columns(count: int, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table of `count` rows, also if it has no column."""
    return pa.Table.from_arrays([pa.nulls(count), *columns.values()], ["", *columns]).remove_column(0)


def _judged_blocks(unit: dict, first: int, judged: Judged) -> Iterator[pa.Table]:
    """Yield the blocks of consecutive rows of a file. `first` is the number of the first of them."""
    data = judged.data
    errors = _invalid_values(data)
    for position, error in judged.errors.items():
        if position < len(data):
            errors[position] = error
    numbers = first + np.arange(len(data))
    if errors:
        yield from quarantined_rows(unit, {first + position: error for position, error in errors.items()})
        good = np.delete(np.arange(len(data)), list(errors))
        numbers, data = numbers[good], data.take(good)
    if len(numbers):
        yield table_block(unit, numbers, data)


def _invalid_values(data: pa.Table) -> dict[int, Exception]:
    """Return the errors of rows with values that readers do not check, such as texts that are not UTF-8."""
    errors: dict[int, Exception] = {}
    try:
        data.validate(full=True)  # 40 GB per second
        return errors
    except pa.ArrowInvalid:
        pass
    for field, column in zip(data.schema, data.columns, strict=True):
        for row in range(len(data)):
            try:
                column.take(pa.array([row])).validate(full=True)
            except pa.ArrowInvalid as error:
                reason = f"found another value: {str(error).removeprefix('In chunk 0: Invalid: ')}"
                errors.setdefault(row, RowError(f"column {field.name}: expected {field.type}, {reason}"))
    return errors


def _error_of(tables: Iterator[Any]) -> Exception:
    """Return the error of a file that was broken when it was listed."""
    try:
        next(tables, None)
    except Exception as error:
        if not is_corrupt_file(error):
            raise
        return error
    return RowError("the file could not be read when it was listed, and can be now; a run with force lists it again")
