"""Parquet files: one row group, one unit. Columns out: the file's own, `row_id` (`path#n`) and `uri`.

A column has one type in all files: a type that holds the values of all files. If there is no such type, the most
frequent schema of the first files decides. Rows with values that the type cannot represent unchanged are quarantined.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from overnight.tasks.ingest.formats.parquet import open_parquet, row_groups, rows_of
from overnight.tasks.ingest.formats.parquet_types import conform, joined, joined_by_frequency, plain_schema
from overnight.tasks.ingest.reading.table_blocks import is_corrupt_file
from overnight.tasks.ingest.reading.unit_rows import FILES_AT_ONCE, Judged, RowRange, counted_rows, counted_units
from overnight.tasks.ingest.source import FolderSource, with_seen
from overnight.tasks.storage.location import File

SAMPLE_FILES = 100


class Parquet(FolderSource):
    """Every file below the directory that ends in .parquet."""

    kind: Literal["parquet"] = "parquet"
    columns: Annotated[list[str] | None, Field(description="Columns to read; default: all.")] = None

    holds_texts: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".parquet", ".parq")

    def units(self, files: list[File]) -> pa.Table:
        found: dict[str, pa.Schema] = {}

        def parts(file: File) -> list[RowRange]:
            with self.file({"uri": file.uri, "version": file.version}, file.size).open() as opened:
                parquet = open_parquet(opened)
                groups = row_groups(parquet, opened)
                found[file.path] = plain_schema(parquet.schema_arrow)
            return groups

        units = counted_units(files, parts)
        different: dict[pa.Schema, str] = {}
        for file in files:
            if file.path in found:
                different.setdefault(found[file.path], file.path)
        return with_seen(units, (joined([(path, schema)]) for schema, path in different.items()))

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        """Return the columns of the first files, each of a type that holds the values of all.

        If there is no such type, the type in the most frequent schema wins.
        """
        firsts = units.filter(pc.equal(units["first_row"], 0)).slice(0, SAMPLE_FILES).to_pylist()
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            found = list(pool.map(self._plain_schema, firsts))
        files = [(unit["path"], schema) for unit, schema in zip(firsts, found, strict=True) if schema is not None]
        return joined_by_frequency(files)

    def full_schema(self, first: pa.Schema | None, seen: Iterable[pa.Schema]) -> pa.Schema | None:
        return joined([("", first or pa.schema([])), *(("", schema) for schema in seen)])

    def _plain_schema(self, unit: dict) -> pa.Schema | None:
        try:
            with self.file(unit).open() as opened:
                return plain_schema(open_parquet(opened).schema_arrow)
        except Exception as error:
            if not is_corrupt_file(error):
                raise
            return None

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from counted_rows(unit, self._tables(unit, schema or pa.schema([])))

    def _tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        with self.file(unit).open() as opened:
            file = open_parquet(opened)
            columns = self.columns_of(unit["path"], file.schema_arrow.names)
            for found in rows_of(file, opened, unit["row_group"], columns):
                yield conform(found, schema, unit["path"])
