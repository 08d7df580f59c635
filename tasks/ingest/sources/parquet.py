"""Parquet files: one row group, one unit. Columns out: the file's own, `row_id` (`path#n`) and `uri`.

A column has one type in all files: a type that holds the values of all files. If there is no such type, the most
frequent schema of the first files decides. Rows with values that the type cannot represent unchanged are quarantined.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.ingest.folder_source import FolderSource
from overnight.tasks.ingest.formats.parquet import open_parquet, row_groups, rows_of
from overnight.tasks.ingest.formats.parquet_types import conform, joined, joined_by_frequency, plain_schema
from overnight.tasks.ingest.reading.file_errors import passing_over_damage
from overnight.tasks.ingest.reading.unit_rows import FILES_AT_ONCE, Judged, RowRange, counted_units
from overnight.tasks.ingest.source import Columns, with_seen
from overnight.tasks.storage.location import File

SAMPLE_FILES = 100


class Parquet(FolderSource):
    """Every file below the directory that ends in .parquet."""

    kind: Literal["parquet"] = "parquet"
    columns: Columns = None

    holds_texts: ClassVar[bool] = True
    extensions: ClassVar[tuple[str, ...]] = (".parquet", ".parq")

    def units(self, files: list[File]) -> pa.Table:
        schemas: dict[str, pa.Schema] = {}

        def parts(file: File) -> list[RowRange]:
            with self.file({"uri": file.uri, "version": file.version}, file.size).open() as handle:
                parquet = open_parquet(handle)
                groups = row_groups(parquet, handle)
                schemas[file.path] = plain_schema(parquet.schema_arrow)
            return groups

        units = counted_units(files, parts)
        paths: dict[pa.Schema, str] = {}  # of the first file of each schema
        for file in files:
            if file.path in schemas:
                paths.setdefault(schemas[file.path], file.path)
        return with_seen(units, (joined([(path, schema)]) for schema, path in paths.items()))

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        firsts = units.filter(pc.equal(units["first_row"], 0)).slice(0, SAMPLE_FILES).to_pylist()
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return joined_by_frequency(list(chain.from_iterable(pool.map(self._schema_of, firsts))))

    def full_schema(self, first: pa.Schema | None, seen: Iterable[pa.Schema]) -> pa.Schema | None:
        return joined(zip(repeat(""), [first or pa.schema([]), *seen]))

    def _schema_of(self, unit: dict) -> list[tuple[str, pa.Schema]]:
        """Return the path and the columns of a file; nothing if it cannot be read."""
        with passing_over_damage(), self.file(unit).open() as handle:
            return [(unit["path"], plain_schema(open_parquet(handle).schema_arrow))]
        return []

    def tables(self, unit: dict, schema: pa.Schema) -> Iterator[Judged]:
        with self.file(unit).open() as handle:
            file = open_parquet(handle)
            columns = self.columns_of(unit["path"], file.schema_arrow.names)
            for rows in rows_of(file, handle, unit["row_group"], columns):
                yield conform(rows, schema, unit["path"])
