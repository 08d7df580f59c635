"""Hugging Face datasets as `save_to_disk` writes them: one Arrow file, one unit, its rows counted while reading.

Columns out: the dataset's, `row_id` (`path#n`) and `uri`. Images and audio are the bytes of their files, and class
labels are numbers. The folder may contain one dataset, or one per split. The library `datasets` is not needed.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.parquet_types import conform, joined_by_frequency, plain, plain_schema
from overnight.tasks.ingest.listing.list_files import file_units
from overnight.tasks.ingest.reading.table_blocks import is_corrupt_file, plain_type, translate_corruption
from overnight.tasks.ingest.reading.unit_rows import Judged, uncounted_rows
from overnight.tasks.ingest.source import FolderSource
from overnight.tasks.rows.arrow_types import plain_column
from overnight.tasks.storage.location import File
from overnight.tasks.storage.skipped_files import pass_over

ROWS_AT_ONCE, SAMPLE_FILES = 8192, 8
END = b"\xff\xff\xff\xff\0\0\0\0"  # https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
OFFSET_BYTES, PADDING_BYTES = 4, 64  # a writer pads each buffer to 64 bytes at most
NO_DATA = ("cache-", "indices")  # other files that the library leaves beside the data


class HuggingFace(FolderSource):
    """A dataset of Hugging Face as `save_to_disk` writes it: every .arrow file below the directory."""

    kind: Literal["huggingface"] = "huggingface"
    columns: Annotated[list[str] | None, Field(description="Columns to read; default: all.")] = None

    holds_texts: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".arrow",)

    def files(self, partition: str) -> Iterator[File]:
        for file in super().files(partition):
            if file.path.rpartition("/")[-1].startswith(NO_DATA):
                pass_over("file of the library's own", file.path)
            else:
                yield file

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        """Return the columns of the first files, each of a type that holds the values of all.

        If there is no such type, the type in the most frequent schema wins. None if no file can be read.
        """
        found: list[tuple[str, pa.Schema]] = []
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            try:
                found.append((unit["path"], plain_schema(next(self._batches(unit)).schema)))
            except Exception as error:
                if not isinstance(error, StopIteration) and not is_corrupt_file(error):
                    raise
        return joined_by_frequency(found) if found else None

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from uncounted_rows(unit, self._tables(unit, schema))

    def _tables(self, unit: dict, schema: pa.Schema | None) -> Iterator[Judged]:
        for table in self._batches(unit):
            if schema and (more := [name for name in table.column_names if name not in schema.names]):
                expected = f"expected the columns {', '.join(schema.names)}, found {more[0]} too"
                raise RowError(f"{expected}. Name the columns to read in source.columns")
            for start in range(0, len(table), ROWS_AT_ONCE):
                some = Judged(plain(table[start : start + ROWS_AT_ONCE]), {})
                yield conform(some, schema, unit["path"]) if schema else some

    def _batches(self, unit: dict) -> Iterator[pa.Table]:
        """Yield the batches of a file. Raise the reading error after the last whole batch."""
        with self.file(unit, unit["size"]).open() as opened:
            opened.seek(max(0, unit["size"] - len(END)))
            ends_well = opened.read(len(END)) == END
            opened.seek(0)
            expected = f"an Arrow stream as save_to_disk writes it, found a file that begins with {opened.read(8)!r}"
            opened.seek(0)
            with translate_corruption(expected), pa.ipc.open_stream(opened) as stream:
                columns = self.columns_of(unit["path"], stream.schema.names)
                for batch in stream:
                    batch.validate(full=True)
                    _refuse_hidden_rows(batch)
                    table = pa.Table.from_batches([batch])
                    yield _plain(table if columns is None else table.select(columns))
        if not ends_well:
            raise RowError("expected the mark that ends an Arrow stream, found the end of the file")


def _refuse_hidden_rows(batch: pa.RecordBatch) -> None:
    """Raise `RowError` if a buffer has room for more values than the batch declares rows, beyond a buffer's padding."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = column.type
        if pa.types.is_primitive(kind):
            needed = -(-len(column) * kind.bit_width // 8)
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            needed = (len(column) + 1) * OFFSET_BYTES
        else:
            continue
        if (values := column.buffers()[1]) and values.size >= needed + PADDING_BYTES:
            expected = f"expected {len(column):,} rows in a batch, as it declares"
            raise RowError(f"{expected}, found {values.size:,} bytes in column {name}, where the rows need {needed:,}")


def _plain(table: pa.Table) -> pa.Table:
    """Return columns of the library's own types as plain types."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        plain = column
        if isinstance(plain.type, pa.ExtensionType):
            plain = plain.cast(plain.type.storage_type)
        if pa.types.is_struct(plain.type) and {field.name for field in plain.type} == {"bytes", "path"}:
            plain = pc.struct_field(plain, "bytes").cast(pa.large_binary())
        columns[name] = plain_column(plain).cast(plain_type(plain.type))
    return pa.table(columns)
