"""The CSV sink: `<path>/date=D/part-*.csv` with a header, published by `hive_files.py`.

With `compression` the names end in `.csv.gz` or `.csv.zst`. Null is an empty cell, an empty text is `""`. Lists,
structs and maps are JSON (`json_values.py`), bytes are Base64, NaN is `nan`. Times have six digits behind the point, or
nine if their type has nanoseconds.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.csv
from pyarrow import types

from overnight.tasks.rows.arrow_types import is_bytes
from overnight.tasks.rows.nulls import map_present
from overnight.tasks.rows.published_text import carriers
from overnight.tasks.write.merge.json_values import json_texts, plain
from overnight.tasks.write.sinks.text_files import TextFiles
from overnight.tasks.write.stream.unwritable_rows import refuse_far_times

READ_BYTES = 64 * 2**20  # at a time; PyArrow reads every row up to this length


class CsvSink(TextFiles):
    """Hive-partitioned CSV on any filesystem."""

    kind: Literal["csv"] = "csv"

    def take(self, table: pa.Table) -> None:
        super().take(table)
        refuse_far_times(table.select([field.name for field in table.schema if types.is_nested(field.type)]))

    @staticmethod
    @contextmanager
    def writer(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
        with pyarrow.csv.CSVWriter(file, _cells(schema.empty_table()).schema) as writer:
            yield lambda table: writer.write_table(_cells(table))

    @staticmethod
    def reader(file: BinaryIO, kinds: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        read, parse = pyarrow.csv.ReadOptions(block_size=READ_BYTES), pyarrow.csv.ParseOptions(newlines_in_values=True)
        convert = pyarrow.csv.ConvertOptions(
            column_types=carriers(kinds, "csv"),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        for batch in pyarrow.csv.open_csv(file, read, parse, convert):
            yield pa.Table.from_batches([batch])


def _cells(table: pa.Table) -> pa.Table:
    """Return the columns as types for CSV."""
    return pa.table({name: _cell(table[name]) for name in table.column_names})


def _cell(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _cell(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    if types.is_dictionary(kind):
        return _cell(column.cast(kind.value_type))
    if types.is_timestamp(kind) or types.is_time(kind):
        unit = "ns" if kind.unit == "ns" else "us"
        return column.cast(pa.timestamp(unit, kind.tz) if types.is_timestamp(kind) else pa.time64(unit))
    if is_bytes(kind):
        texts = map_present(lambda value: base64.b64encode(value).decode(), column.to_pylist())
        return pa.array(texts, pa.string())
    if types.is_decimal(kind):
        return column.cast(pa.string())
    return json_texts(column) if types.is_nested(kind) else plain(column)
