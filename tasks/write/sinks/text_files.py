"""The common part of text file sinks: rows become text while they are merged, compressed or not."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.rows.published_text import published_types, restored
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import PART, Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import OutputFormat, Prepared, merge, merged_rows, published_schema
from overnight.tasks.write.sink import file_prefix
from overnight.tasks.write.sinks.hive_files import HiveFiles, make_place

ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
Writer = Callable[[BinaryIO, pa.Schema], AbstractContextManager[Callable[[pa.Table], None]]]


class TextFiles(HiveFiles):
    """Hive-partitioned text files. A leaf adds `writer`, `reader` and `kind`, which ends the file names.

    `target_file_size` is measured in staged Parquet; text takes several times as much.
    """

    kind: str
    compression: Annotated[Literal["none", "gzip", "zstd"], Field(description="The compression of whole files.")] = (
        "none"
    )

    operational: ClassVar[tuple[str, ...]] = ("compression",)

    @staticmethod
    @abc.abstractmethod
    def writer(file: BinaryIO, schema: pa.Schema) -> AbstractContextManager[Callable[[pa.Table], None]]:
        """Return a context with a function that writes one table after another, of these columns, to `file`."""

    @staticmethod
    @abc.abstractmethod
    def reader(file: BinaryIO, kinds: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """Yield the rows of a file. `kinds` has the types in which columns without inner types were published."""

    def read(self, place: Location, receipt: Mapping[str, Any], columns: list[str] | None) -> Iterator[pa.Table]:
        """Yield the rows in the types in which they were published. Types with inner types are as the file has them."""
        kinds = published_types(receipt)
        packings = {ending: packing for packing, ending in ENDINGS.items() if ending}
        for name in receipt["files"]:
            packing = packings.get(PurePosixPath(name).suffix)  # the setting may have changed since
            with self.place_of(place, name).open() as file:
                for table in self.reader(pa.CompressedInputStream(file, packing) if packing else file, kinds):
                    yield restored(table.select(columns) if columns else table, kinds)

    def cannot_rewrite(self, run: Run, schema: pa.Schema, files: Sequence[str]) -> str:
        for field in schema:
            if pa.types.is_nested(field.type):
                return f"files of {self.kind} do not keep the exact type of the column {field.name}"
        return ""

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        schema, directory = published_schema(records), make_place(run)
        extension = f".{self.kind}{ENDINGS[self.compression]}"
        form = OutputFormat(directory, extension, partial(_packed, self.writer, self.compression))
        return merge(
            run.parts, records, merged, schema, merged_rows(run), file_prefix(run), PART, "zstd",
            self.target_file_size, form,
        )  # fmt: skip

    def discard(self, run: Run) -> None:
        merged_rows(run).remove()
        super().discard(run)


@contextmanager
def _packed(
    writer: Writer, compression: str, file: BinaryIO, schema: pa.Schema
) -> Iterator[Callable[[pa.Table], None]]:
    """Yield `writer` on a file that compresses its input."""
    if compression == "none":
        with writer(file, schema) as take:
            yield take
        return
    own = open(file.fileno(), "wb", closefd=False)  # noqa: SIM115 - the stream closes it, and `file` stays open
    with pa.CompressedOutputStream(own, compression) as compressor, writer(compressor, schema) as take:
        yield take
