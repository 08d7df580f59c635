"""Parquet files: one row group, one unit. Columns out: the file's own, `row_id` (`path#n`) and `uri`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from tasks.errors import RowError
from tasks.ingest.source import Source
from tasks.ingest.tables import is_damage, rest_of_unit, table_block, unreadable
from tasks.manifest import UNITS
from tasks.storage import File

ROWS_AT_ONCE = 8192
BROKEN = -1  # as row_group: the file's footer could not be read, so the file is one row


class Parquet(Source):
    """Every file below the directory that ends in .parquet."""

    kind: Literal["parquet"] = "parquet"
    columns: Annotated[list[str] | None, Field(description="Columns to read; default: all.")] = None

    extensions: ClassVar[tuple[str, ...]] = (".parquet", ".parq")

    def units(self, files: list[File]) -> pa.Table:
        with ThreadPoolExecutor(16) as pool:
            groups = list(pool.map(self._row_groups, files))
        records = [
            (file.path, file.uri, size, file.version, first, count, group)
            for file, found in zip(files, groups, strict=True)
            for first, count, group, size in found
        ]
        columns: list[Any] = list(zip(*records, strict=True)) if records else [[]] * 7
        return pa.table([range(len(records)), *columns], schema=UNITS)

    def _row_groups(self, file: File) -> list[tuple[int, int, int, int]]:
        """(first row, rows, row group, bytes) of each row group."""
        try:
            with self.file({"uri": file.uri, "version": file.version}, file.size).open() as opened:
                metadata = pq.ParquetFile(opened).metadata
        except Exception as error:
            if not is_damage(error):
                raise
            return [(0, 1, BROKEN, file.size)]
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        firsts = np.cumsum([0, *(group.num_rows for group in groups)])
        return [
            (int(firsts[i]), group.num_rows, i, group.total_byte_size)
            for i, group in enumerate(groups)
            if group.num_rows
        ]

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        for unit in units.to_pylist():
            yield from self._read_unit(unit)

    def _read_unit(self, unit: dict) -> Iterator[pa.Table]:
        done, is_broken = 0, unit["row_group"] == BROKEN
        damage: Exception = RowError("the file is not the one that was listed")
        try:
            with self.file(unit).open() as opened:
                file = pq.ParquetFile(opened, pre_buffer=True, page_checksum_verification=True)
                missing = sorted(set(self.columns or ()) - set(file.schema_arrow.names))
                if missing:
                    raise pa.ArrowInvalid(f"expected column {missing[0]}, found {', '.join(file.schema_arrow.names)}")
                groups = [] if is_broken else [unit["row_group"]]
                for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=self.columns):
                    data = _plain(pa.Table.from_batches([batch])[: unit["rows"] - done])
                    yield table_block(unit, unit["first_row"] + done + np.arange(len(data)), data)
                    done += len(data)
        except Exception as error:
            if not is_damage(error):
                raise
            damage = error
        if is_broken:
            yield from unreadable(unit, damage)
        else:
            yield from rest_of_unit(unit, unit["first_row"] + done, unit["first_row"] + unit["rows"], damage)


def _plain(data: pa.Table) -> pa.Table:
    """Dictionaries as their values: what is one in one file may be none in the next."""
    for place, field in enumerate(data.schema):
        if pa.types.is_dictionary(field.type):
            data = data.set_column(place, field.name, data[field.name].cast(field.type.value_type))
    return data
