"""Convert data from memory to Arrow tables: DataFrames, Arrow data, lists of dicts, or objects with an Arrow stream."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from overnight.tasks.errors import JobError
from overnight.tasks.rows.tensors import to_arrow

EXPECTED = (
    "a DataFrame of pandas or Polars, an Arrow table or reader, a Ray Dataset, a list of dicts, or an object with "
    "__arrow_c_stream__"
)


def as_tables(data: Any) -> Iterator[pa.Table]:
    """Yield the rows of `data` as one or more Arrow tables, with types that Parquet can store.

    `data` is a DataFrame, an Arrow table or batch, a list of dicts, or an object with `__arrow_c_stream__`. Raise
    `JobError` for other data, and for values that Arrow cannot represent.
    """
    if _is_of(data, "pandas", "DataFrame"):
        yield _of_pandas(data)
    elif isinstance(data, pa.RecordBatch):
        yield plain(pa.Table.from_batches([data]))
    elif isinstance(data, pa.Table):
        yield plain(data)
    elif isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        yield _of_columns({name: [row.get(name) for row in data] for name in names})
    elif hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        empty = True
        for batch in reader:
            empty = False
            yield plain(pa.Table.from_batches([batch]))
        if empty:
            yield plain(reader.schema.empty_table())
    else:
        lazy = ". Call collect() first" if hasattr(data, "collect") else ""
        raise JobError(f"data: expected {EXPECTED}, found {type(data).__name__}{lazy}.")


def _of_pandas(frame: Any) -> pa.Table:
    """Return the columns of a DataFrame; the levels of its index that have names become columns, too."""
    if named := [name for name in frame.index.names if name is not None]:
        unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
        frame = frame.reset_index(level=unnamed, drop=True) if unnamed else frame
        if taken := set(named) & set(frame.columns):
            raise JobError(f"data: expected different names, found {sorted(taken)[0]} as a column and as an index.")
        frame = frame.reset_index()
    columns = dict(enumerate(frame.columns))
    names = [columns[place] for place in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise JobError(f"data: expected different names of columns, found {twice} twice.")
    return _of_columns({name: frame.iloc[:, place] for place, name in columns.items()})


def _of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    found: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise JobError(f"data: expected texts as names of columns, found {name!r}. Rename the column.")
        is_object = isinstance(values, list) or values.dtype == object
        convert: Callable[[Any], Any] = _of_objects if is_object else pa.Array.from_pandas
        try:
            found[name] = convert(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, OSError) as error:
            raise JobError(
                f"data: expected one type of values in the column {name}, found others: {error}. Convert the column."
            ) from None
    return plain(pa.table(found))


def _of_objects(values: Any) -> pa.Array:
    """Return Python's values as Arrow: arrays stay arrays, and images of Pillow become the bytes of a PNG file."""
    return to_arrow([_as_png(value) if hasattr(value, "tobytes") else value for value in values])


def _as_png(value: Any) -> Any:
    if not type(value).__module__.startswith("PIL."):
        return value
    written = io.BytesIO()
    value.save(written, "PNG")
    return written.getvalue()


def plain(table: pa.Table) -> pa.Table:
    """Return the table with column types that Parquet can store, and without metadata.

    Tensors of any extension type become Overnight's own type of tensors. Other extension types become their storage
    types. Metadata is left out, because that of pandas differs between versions.
    """
    for place, field in enumerate(table.schema):
        column, kind = table[field.name], field.type
        if isinstance(kind, pa.BaseExtensionType):
            column = _without_extension(column)
        elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
            column = column.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
        elif pa.types.is_null(kind):
            continue
        if column.type != kind:
            table = table.set_column(place, field.name, column)
    return table.replace_schema_metadata(None)


def _without_extension(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return arrays of one or more dimensions as Overnight's own type, and other extension types as their storage."""
    if hasattr(column.type, "shape") or "Tensor" in type(column.type).__name__:
        cells = [cell for chunk in column.chunks for cell in _arrays(chunk)]
        return pa.chunked_array([to_arrow(cells)])
    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def _arrays(chunk: pa.Array) -> Iterator[Any]:
    found = chunk.to_numpy_ndarray() if hasattr(chunk, "to_numpy_ndarray") else chunk.to_numpy(zero_copy_only=False)
    for cell, is_there in zip(found, chunk.is_valid().to_pylist(), strict=True):
        yield cell if is_there else None


def _is_of(data: Any, package: str, name: str) -> bool:
    return type(data).__name__ == name and type(data).__module__.split(".")[0] == package
