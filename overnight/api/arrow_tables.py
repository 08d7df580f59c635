"""Convert data from memory to Arrow tables: DataFrames, Arrow data, lists of dicts, or objects with an Arrow stream.

`data.py` writes the tables as Parquet, the source of a run. So their types must be Parquet's.
`overnight/tasks/rows/plain_values.py` has the table of what Python's objects become.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import InvalidValues, JobError
from overnight.tasks.rows import arrow_types
from overnight.tasks.rows.nulls import present
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
        columns: dict[Any, list[Any]] = {}
        for name in dict.fromkeys(chain.from_iterable(data)):
            columns[name] = [row.get(name) for row in data]
        yield _of_columns(columns)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _of_stream(data)
    else:
        kind = type(data).__name__
        if isinstance(data, list | tuple):
            kind += f" of {_kinds(data)}"
        remedy = ". Call collect() first" * hasattr(data, "collect")
        raise JobError(f"data: expected {EXPECTED}, found {kind}{remedy}.")


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
    is_empty = True
    for batch in reader:
        is_empty = False
        yield plain(pa.Table.from_batches([batch]))
    if is_empty:
        yield plain(reader.schema.empty_table())


def _of_pandas(frame: Any) -> pa.Table:
    """Return the columns of a DataFrame; the levels of its index that have names become columns, too."""
    names = present(frame.index.names)
    _require_names([*names, *frame.columns])
    if names:
        nameless = [level for level, name in enumerate(frame.index.names) if name is None]
        if nameless:
            frame = frame.reset_index(level=nameless, drop=True)
        frame = frame.reset_index()
    return _of_columns(dict(frame.items()))


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    _require_names(list(columns))
    return plain(pa.table({name: _of_values(name, values) for name, values in columns.items()}))


def _of_values(name: str, values: Any) -> pa.Array:
    """Return a column of pandas, or a list with a value per row, as Arrow. Arrays stay arrays."""
    dtype = getattr(values, "dtype", None)
    try:
        if hasattr(values, "sparse"):
            values = values.sparse.to_dense()
        values = plain_column(name, values)
        if isinstance(values, list) or values.dtype == object:
            return to_arrow(values)
        return pa.Array.from_pandas(values)
    except InvalidValues as error:
        raise JobError(f"data: {error}") from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError, OSError) as error:
        kind = _kinds(values) if dtype in (None, object) else str(dtype)
        raise JobError(
            f"data: expected one type of values that Arrow has in the column {name}, found {kind}: {error}. "
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
            problem = f"expected different names of columns and index levels, found {name} twice"
            raise JobError(f"data: {problem}. Rename one.")
        try:
            name.encode()
        except UnicodeEncodeError:
            problem = f"expected names of columns that UTF-8 has, found {name!r}"
            raise JobError(f"data: {problem}. Rename the column.") from None


def plain(table: pa.Table) -> pa.Table:
    """Return the table with column types that Parquet can store, and without metadata.

    Tensors of any extension type become Overnight's own type of tensors. Other extension types become their storage
    types. Metadata is left out, because that of pandas differs between versions. Raise `JobError` for other types.
    """
    _require_names(table.column_names)
    columns = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        _require_storable(field.name, field.type)
        try:
            columns[field.name] = _plain_column(column)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise _unstorable(field.name, f"{field.type} ({error})") from None
    schema = pa.schema([field.with_type(columns[field.name].type) for field in table.schema])
    return pa.table(columns, schema=schema)


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        return _without_extension(column)
    if types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if types.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return arrow_types.plain_column(column)


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
    if not hasattr(column.type, "shape") and "Tensor" not in type(column.type).__name__:
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    cells: list[Any] = []
    for chunk in column.chunks:
        has_arrays = hasattr(chunk, "to_numpy_ndarray")
        arrays = chunk.to_numpy_ndarray() if has_arrays else chunk.to_numpy(zero_copy_only=False)
        for cell, is_valid in zip(arrays, chunk.is_valid().to_pylist(), strict=True):
            cells.append(cell if is_valid else None)
    if all(cell is None for cell in cells):
        return pa.chunked_array([pa.nulls(len(cells), TENSOR)])
    return pa.chunked_array([to_arrow(cells)])


def _is_of(data: Any, package: str, name: str) -> bool:
    return type(data).__name__ == name and type(data).__module__.split(".")[0] == package
