"""Parquet files: one row group, one unit. Columns out: the file's own, `row_id` (`path#n`) and `uri`."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from tasks.errors import RowError
from tasks.ingest.counted import Part, counted_rows, counted_units
from tasks.ingest.parquet_file import open_parquet, row_groups, rows_of
from tasks.ingest.source import FileSource
from tasks.storage import File


class Parquet(FileSource):
    """Every file below the directory that ends in .parquet."""

    kind: Literal["parquet"] = "parquet"
    columns: Annotated[list[str] | None, Field(description="Columns to read; default: all.")] = None

    extensions: ClassVar[tuple[str, ...]] = (".parquet", ".parq")

    def units(self, files: list[File]) -> pa.Table:
        return counted_units(files, self._parts)

    def _parts(self, file: File) -> list[Part]:
        with self.file({"uri": file.uri, "version": file.version}, file.size).open() as opened:
            return row_groups(opened)

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from counted_rows(unit, self._tables(unit))

    def _tables(self, unit: dict) -> Iterator[pa.Table]:
        with self.file(unit).open() as opened:
            file = open_parquet(opened)
            missing = sorted(set(self.columns or ()) - set(file.schema_arrow.names))
            if missing:
                raise RowError(f"expected column {missing[0]}, found {', '.join(file.schema_arrow.names)}")
            yield from rows_of(file, unit["row_group"], self.columns)
