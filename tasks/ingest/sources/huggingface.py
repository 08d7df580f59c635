"""Hugging Face datasets as `save_to_disk` writes them: one Arrow file, one unit, its rows counted while reading.

Columns out: the dataset's, `row_id` (`path#n`) and `uri`. Images and audio are the bytes of their files, and class
labels are numbers. The folder may contain one dataset, or one per split. The library `datasets` is not needed.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.formats.parquet_types import conform, joined_by_frequency, plain, plain_schema
from overnight.tasks.ingest.reading.file_errors import passing_over_damage, translate_corruption
from overnight.tasks.ingest.reading.table_blocks import ROWS_AT_ONCE, plain_type
from overnight.tasks.ingest.reading.unit_rows import Judged
from overnight.tasks.ingest.source import Columns
from overnight.tasks.rows.arrow_types import plain_column, types_by_name
from overnight.tasks.storage.location import File
from overnight.tasks.storage.skipped_files import pass_over

SAMPLE_FILES = 8
# https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
END = b"\xff\xff\xff\xff\0\0\0\0"
NO_DATA = ("cache-", "indices")  # other files that the library leaves beside the data


class HuggingFace(FolderSource):
    """A dataset of Hugging Face as `save_to_disk` writes it: every .arrow file below the directory."""

    kind: Literal["huggingface"] = "huggingface"
    columns: Columns = None

    holds_texts: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".arrow",)

    def files(self, partition: str) -> Iterator[File]:
        for file in super().files(partition):
            if file.path.rpartition("/")[-1].startswith(NO_DATA):
                pass_over("file of the library's own", file.path)
            else:
                yield file

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        schemas: list[tuple[str, pa.Schema]] = []
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            with passing_over_damage():
                schemas += [(unit["path"], plain_schema(next(self._batches(unit)).schema))]
        if not schemas:
            return None
        return joined_by_frequency(schemas)

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        for table in self._batches(unit):
            if len(schema) and (more := [name for name in table.column_names if name not in schema.names]):
                sentence = f"expected the columns {', '.join(schema.names)}, found {more[0]} too"
                raise RowError(f"{sentence}. Name the columns to read in source.columns")
            for start in range(0, len(table), ROWS_AT_ONCE):
                yield conform(Judged(plain(table[start : start + ROWS_AT_ONCE]), {}), schema, unit["path"])

    def _batches(self, unit: dict) -> Iterator[pa.Table]:
        """Yield the batches of a file. Raise the reading error after the last whole batch."""
        with self.file(unit, unit["size"]).open() as handle:
            handle.seek(max(0, unit["size"] - len(END)))
            ends_well = handle.read(len(END)) == END
            handle.seek(0)
            sentence = f"an Arrow stream as save_to_disk writes it, found a file that begins with {handle.read(8)!r}"
            handle.seek(0)
            with translate_corruption(sentence), pa.ipc.open_stream(handle) as stream:
                columns = self.columns_of(unit["path"], stream.schema.names)
                for batch in stream:
                    batch.validate(full=True)
                    names = batch.schema.names if columns is None else columns
                    yield pa.table({name: _plain_column(pa.chunked_array([batch[name]])) for name in names})
        if not ends_well:
            raise RowError("expected the mark that ends an Arrow stream, found the end of the file")


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of the library's own types as a plain type."""
    if isinstance(column.type, pa.ExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_struct(column.type) and set(types_by_name(column.type)) == {"bytes", "path"}:
        column = pc.struct_field(column, "bytes").cast(pa.large_binary())
    return plain_column(column).cast(plain_type(column.type))
