"""Convert data from memory to Arrow tables: DataFrames, Arrow data, lists of dicts, or objects with an Arrow stream.

`overnight/tasks/rows/plain_values.py` lists what Python's objects become.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import InvalidValues, JobError
from overnight.tasks.rows import arrow_types
from overnight.tasks.rows.plain_values import plain_column
from overnight.tasks.rows.tensors import TENSOR, to_arrow

EXPECTED = (
    "a DataFrame of pandas or Polars, an Arrow table or reader, a Ray Dataset, a list of dicts, or an object with "
    "__arrow_c_stream__"
)
NOT_IN_ARROW = re.compile(r"(?<!['\w])(U?Int128|Object)(?!['\w])")  # types of Polars; names of fields are in quotes


def as_tables(data: Any) -> Iterator[pa.Table]:
    """Yield the rows of `data` as one or more Arrow tables, with types that Parquet can store.

    `data` is a DataFrame, an Arrow table or batch, a list of dicts, or an object with `__arrow_c_stream__`. Raise
    `JobError` for other data, and for columns that Parquet cannot store.
    """
    if _is_of(data, "pandas", "DataFrame"):
        yield _of_pandas(data)
    elif isinstance(data, pa.RecordBatch):
        yield plain(pa.Table.from_batches([data]))
    elif isinstance(data, pa.Table):
        yield plain(data)
    elif isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        yield _of_columns({name: [row.get(name) for row in data] for name in names})
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _of_stream(data)
    else:
        found = type(data).__name__
        if isinstance(data, list | tuple):
            found += f" of {_kinds(data)}"
        lazy = ". Call collect() first" if hasattr(data, "collect") else ""
        raise JobError(f"data: expected {EXPECTED}, found {found}{lazy}.")


def _of_stream(data: Any) -> Iterator[pa.Table]:
    if _is_of(data, "polars", "DataFrame"):
        for name, kind in data.schema.items():
            if NOT_IN_ARROW.search(str(kind)):
                raise _unstorable(name, str(kind))
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError) as error:
        remedy = ". Call to_frame() first" if hasattr(data, "to_frame") else f": {error}"
        raise JobError(f"data: expected {EXPECTED}, found {type(data).__name__}{remedy}.") from None
    empty = True
    for batch in reader:
        empty = False
        yield plain(pa.Table.from_batches([batch]))
    if empty:
        yield plain(reader.schema.empty_table())


def _of_pandas(frame: Any) -> pa.Table:
    """Return the columns of a DataFrame; the levels of its index that have names become columns, too."""
    named = [name for name in frame.index.names if name is not None]
    _require_names([*named, *frame.columns])
    if named:
        unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
        frame = (frame.reset_index(level=unnamed, drop=True) if unnamed else frame).reset_index()
    return _of_columns({name: frame[name] for name in frame.columns})


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    _require_names(list(columns))
    return plain(pa.table({name: _of_values(name, values) for name, values in columns.items()}))


def _of_values(name: str, values: Any) -> pa.Array:
    """Return a column of pandas, or a list with a value per row, as Arrow. Arrays stay arrays."""
    kind = getattr(values, "dtype", None)
    try:
        if hasattr(values, "sparse"):
            values = values.sparse.to_dense()
        values = plain_column(name, values)
        is_object = isinstance(values, list) or values.dtype == object
        return to_arrow(values) if is_object else pa.Array.from_pandas(values)
    except InvalidValues as error:
        raise JobError(f"data: {error}") from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError, OSError) as error:
        found = str(kind) if kind not in (None, object) else _kinds(values)
        raise JobError(
            f"data: expected one type of values that Arrow has in the column {name}, found {found}: {error}. "
            "Convert the column."
        ) from None


def _kinds(values: Any) -> str:
    return " and ".join(sorted({type(value).__name__ for value in values if value is not None}))


def _require_names(names: Sequence[Any]) -> None:
    """Raise `JobError` for a column's name that is not text, cannot be stored, or occurs twice."""
    for name, count in Counter(names).items():
        if not isinstance(name, str):
            raise JobError(f"data: expected texts as names of columns, found {name!r}. Rename the column.")
        if count > 1:
            raise JobError(
                f"data: expected different names of columns and index levels, found {name} twice. Rename one."
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise JobError(
                f"data: expected names of columns that UTF-8 has, found {name!r}. Rename the column."
            ) from None


def plain(table: pa.Table) -> pa.Table:
    """Return the table with column types that Parquet can store, and without metadata.

    Tensors of any extension type become Overnight's own type of tensors. Other extension types become their storage
    types. Metadata is left out, because that of pandas differs between versions. Raise `JobError` for other types.
    """
    _require_names(table.column_names)
    for place, field in enumerate(table.schema):
        column, kind = table.column(place), field.type
        _require_storable(field.name, kind)
        try:
            if isinstance(kind, pa.BaseExtensionType):
                column = _without_extension(column)
            elif types.is_string_view(kind) or types.is_binary_view(kind):
                column = column.cast(pa.large_string() if types.is_string_view(kind) else pa.large_binary())
            else:
                column = arrow_types.plain_column(column)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise _unstorable(field.name, f"{kind} ({error})") from None
        if column.type != kind:
            table = table.set_column(place, field.name, column)
    return table.replace_schema_metadata(None)


def _require_storable(name: str, kind: pa.DataType) -> None:
    """Raise `JobError` if the type of a column, or a type inside it, has no form in Parquet that keeps its meaning."""
    if isinstance(kind, pa.BaseExtensionType):
        # The storage of a period is its number, and that of an interval lacks the closed side.
        if kind.extension_name in ("pandas.period", "pandas.interval"):
            raise _unstorable(name, kind.extension_name)
        return
    if (
        types.is_interval(kind)
        or types.is_union(kind)
        or (types.is_struct(kind) and not 0 < len(kind) == len({field.name for field in kind}))
        or (types.is_fixed_size_list(kind) and not kind.list_size)
        or (types.is_dictionary(kind) and types.is_nested(kind.value_type))
    ):
        raise _unstorable(name, str(kind))
    if types.is_dictionary(kind):
        _require_storable(name, kind.value_type)
    elif types.is_nested(kind):
        for number in range(kind.num_fields):
            _require_storable(name, kind.field(number).type)


def _unstorable(name: str, kind: str) -> JobError:
    return JobError(
        f"data: expected a type that Parquet has, found {kind} in the column {name}. "
        "Convert the column, for example to text."
    )


def _without_extension(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return arrays of one or more dimensions as Overnight's own type, and other extension types as their storage."""
    if hasattr(column.type, "shape") or "Tensor" in type(column.type).__name__:
        cells = [cell for chunk in column.chunks for cell in _arrays(chunk)]
        is_null = all(cell is None for cell in cells)
        return pa.chunked_array([pa.nulls(len(cells), TENSOR) if is_null else to_arrow(cells)])
    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def _arrays(chunk: pa.Array) -> Iterator[Any]:
    found = chunk.to_numpy_ndarray() if hasattr(chunk, "to_numpy_ndarray") else chunk.to_numpy(zero_copy_only=False)
    for cell, is_there in zip(found, chunk.is_valid().to_pylist(), strict=True):
        yield cell if is_there else None


def _is_of(data: Any, package: str, name: str) -> bool:
    return type(data).__name__ == name and type(data).__module__.split(".")[0] == package
