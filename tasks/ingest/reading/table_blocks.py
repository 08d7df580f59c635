"""Blocks of the rows of a unit, good and lost, and tables in the columns and types that a source promises.

A `unit` is a row of the manifest, as a dict.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.reading.file_errors import translate_corruption
from overnight.tasks.rows import arrow_types, blocks

ROWS_AT_ONCE = 8192
BYTES_AT_ONCE = 16 * 2**20


def table_block(unit: dict, numbers: np.ndarray, data: pa.Table) -> pa.Table:
    """Return the rows `data` of a unit as a block. `numbers` (int64) has each row's number in its file, from 0.

    Columns named `row_id` and `uri` get the prefix `source_`, except in rows that another job published.
    """
    names = data.column_names
    if not unit.get("published"):
        names = list(map(blocks.data_name, names))
    if doubles := repeated(names):
        raise InputError(f"{unit['path']}: expected each column once, found several named {doubles}.")
    if hidden := list(filter(blocks.is_hidden, names)):
        raise InputError(f"{unit['path']}: the column name {hidden[0]} is reserved; rename it in the source.")
    columns: dict[str, Any] = {
        "row_id": pc.binary_join_element_wise(unit["path"], pa.array(numbers).cast(pa.string()), "#"),
        "uri": pa.repeat(pa.scalar(unit["uri"], pa.string()), len(numbers)),
    }
    for name, column in zip(names, data.columns, strict=True):
        columns[name] = column.cast(pa.string()) if name in blocks.IDENTITY else column
    return blocks.with_hidden(pa.table(columns), np.full(len(numbers), unit["unit"]), numbers)


def repeated(names: list[str]) -> str:
    """Return the names that occur more than once, sorted and joined by commas; empty if there is none."""
    return ", ".join(sorted(name for name, count in Counter(names).items() if count > 1))


def quarantined_rows(unit: dict, errors: Mapping[int, Exception], keys: Sequence[Any] = ()) -> Iterator[pa.Table]:
    """Yield blocks of quarantined rows of a unit. The keys of `errors` are the rows' numbers in their file, from 0.

    `keys` has the name of each row, by its number, if it is not `path#n`.
    """
    rows = sorted(errors.items())
    for start in range(0, len(rows), ROWS_AT_ONCE):
        numbers, reasons = zip(*rows[start : start + ROWS_AT_ONCE], strict=True)
        names = [str(keys[number]) if keys else f"{unit['path']}#{number}" for number in numbers]
        identity = {"row_id": names, "uri": [unit["uri"]] * len(names)}
        yield blocks.quarantined_block(identity, unit["unit"], list(numbers), "ingest", reasons)


def rest_of_unit(unit: dict, first: int, stop: int, error: Exception) -> Iterator[pa.Table]:
    """Yield blocks of the rows from `first` to before `stop` of the unit's file, each quarantined with `error`."""
    for start in range(first, stop, ROWS_AT_ONCE):
        yield from quarantined_rows(unit, dict.fromkeys(range(start, min(stop, start + ROWS_AT_ONCE)), error))


def unreadable(unit: dict, error: Exception) -> Iterator[pa.Table]:
    """Yield the blocks of a unit whose file cannot be opened: one quarantined row, and the unit's end."""
    identity = {"row_id": [unit["path"]], "uri": [unit["uri"]]}
    yield blocks.quarantined_block(identity, unit["unit"], [0], "ingest", [error])
    yield from end_of_unit(unit, 1)


def lost_unit(unit: dict, error: Exception) -> Iterator[pa.Table]:
    """Yield the blocks of a unit that cannot be read: its rows, or one row if their number is unknown."""
    first, count = unit["first_row"], unit["rows"] or 1
    if count == 1 and not first:
        yield from unreadable(unit, error)
        return
    yield from rest_of_unit(unit, first, first + count, error)
    yield from end_of_unit(unit, first + count)


def end_of_unit(unit: dict, count: int) -> Iterator[pa.Table]:
    """Yield the END row, which states the number of rows, if the manifest does not have it."""
    if unit["rows"] is None:
        yield blocks.settled_block({}, unit["unit"], [count], blocks.END)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, or the ordinary type of views, large texts and large lists."""
    kind = arrow_types.plain_type(kind)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def require_known(setting: str, names: Iterable[str], columns: Sequence[str], kind: str = "column") -> None:
    """Raise `InputError` if a setting names a column that is not among `columns`."""
    if unknown := sorted(set(names).difference(columns)):
        raise InputError(f"source.{setting}: no {kind} {unknown[0]}; the {kind}s are {', '.join(columns)}.")


def chosen_columns(schema: pa.Schema, names: list[str] | None) -> pa.Schema:
    """Return the columns `names` of a table, or all, in plain types. Raise `InputError` for an unknown name."""
    require_known("columns", names or (), schema.names)
    return pa.schema([(name, plain_type(schema.field(name).type)) for name in names or schema.names])


def as_schema(data: pa.Table, schema: pa.Schema, constants: Mapping[str, str | None] = {}) -> pa.Table:
    """Return `data` in the columns and types of `schema`. `constants` has values that are the same in every row."""
    columns = {}
    for field in schema:
        if field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], pa.string()), len(data)).cast(field.type)
        elif field.name in data.column_names:
            source_column = arrow_types.plain_column(data[field.name])
            with translate_corruption(f"column {field.name} as {field.type}, found {source_column.type}"):
                column = source_column.cast(field.type)
        else:
            column = pa.nulls(len(data), field.type)
        columns[field.name] = column
    return pa.table(columns)
