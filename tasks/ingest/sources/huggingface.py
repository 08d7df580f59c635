"""Hugging Face datasets as `save_to_disk` writes them: one Arrow file, one unit, its rows counted while reading.

Columns out: the dataset's, `row_id` (`path#n`) and `uri`; images and audio as their files' bytes, class labels as
numbers. The folder may hold one dataset, or one a split. The library `datasets` is not needed.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.listing.list_files import file_units
from overnight.tasks.ingest.reading.table_blocks import as_schema, is_corrupt_file, plain_type, translate_corruption
from overnight.tasks.ingest.reading.unit_rows import uncounted_rows
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.storage.location import File
from overnight.tasks.storage.skipped_files import pass_over

ROWS_AT_ONCE, SAMPLE_FILES = 8192, 8
END = b"\xff\xff\xff\xff\0\0\0\0"  # https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
NO_DATA = ("cache-", "indices")  # what the library leaves beside the data


class HuggingFace(FileSource):
    """A dataset of Hugging Face as `save_to_disk` writes it: every .arrow file below the directory."""

    kind: Literal["huggingface"] = "huggingface"
    columns: Annotated[list[str] | None, Field(description="Columns to read; default: all.")] = None

    holds_texts: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".arrow",)

    def files(self, partition: str) -> Iterator[File]:
        for file in super().files(partition):
            if file.path.rpartition("/")[-1].startswith(NO_DATA):
                pass_over("file that the library keeps for itself", file.path)
            else:
                yield file

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=None)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        for unit in units.slice(0, SAMPLE_FILES).to_pylist():
            try:
                return next(self._batches(unit)).schema
            except Exception as error:
                if not isinstance(error, StopIteration) and not is_corrupt_file(error):
                    raise
        return None

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from uncounted_rows(unit, self._tables(unit, schema))

    def _tables(self, unit: dict, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for table in self._batches(unit):
            missing = sorted(set(schema.names if schema else ()) - set(table.column_names))
            if missing:
                raise RowError(f"expected column {missing[0]}, found {', '.join(table.column_names)}")
            for start in range(0, len(table), ROWS_AT_ONCE):
                some = table[start : start + ROWS_AT_ONCE]
                yield as_schema(some, schema) if schema else some

    def _batches(self, unit: dict) -> Iterator[pa.Table]:
        """Raises what breaks the reading after the last batch that is whole."""
        with self.file(unit, unit["size"]).open() as opened:
            opened.seek(max(0, unit["size"] - len(END)))
            ends_well = opened.read(len(END)) == END
            opened.seek(0)
            expected = f"an Arrow stream as save_to_disk writes it, found a file that begins with {opened.read(8)!r}"
            opened.seek(0)
            with translate_corruption(expected), pa.ipc.open_stream(opened) as stream:
                if missing := sorted(set(self.columns or ()) - set(stream.schema.names)):
                    raise RowError(f"expected column {missing[0]}, found {', '.join(stream.schema.names)}")
                for batch in stream:
                    batch.validate(full=True)
                    table = pa.Table.from_batches([batch])
                    yield _plain(table.select(self.columns) if self.columns else table)
        if not ends_well:
            raise RowError("expected the mark that ends an Arrow stream, found the end of the file")


def _plain(table: pa.Table) -> pa.Table:
    """Columns of the library's own types as what they hold."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        plain = column
        if isinstance(plain.type, pa.ExtensionType):
            plain = plain.cast(plain.type.storage_type)
        if pa.types.is_struct(plain.type) and {field.name for field in plain.type} == {"bytes", "path"}:
            plain = pc.struct_field(plain, "bytes").cast(pa.large_binary())
        columns[name] = plain.cast(plain_type(plain.type))
    return pa.table(columns)
