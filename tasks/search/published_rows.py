"""Published rows for search: Parquet files, and the partitions of a Lance table.

Both yield batches of a few columns, with the same rows in the same order each time. For the matches they then yield the
plain columns: texts, numbers, truth values and times, but not lists or bytes.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import ContractError
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import object_store_uri, storage_options

READ_BYTES = 4 * 2**20  # of a file at a time: otherwise a row group's whole column is read
SHOWN_ROWS = 1024  # rows per read for the columns that are shown


class Rows(Protocol):
    """The published rows of one partition, or of one file of it, at `place`."""

    @property
    def partition(self) -> str: ...
    @property
    def place(self) -> Location: ...
    def batches(self, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield `columns` of all rows, in batches of at most `batch_rows` rows.

        Raise `ContractError` for a missing column.
        """

    def plain(self, wanted: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield a dict per row with its plain columns: texts, numbers, truth values and times.

        `wanted` has the 0-based places of the rows, ascending.
        """


@dataclass(frozen=True)
class ParquetRows:
    """The rows of a published Parquet file at `place`, and the partition that it belongs to."""

    partition: str
    place: Location

    def batches(self, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield `columns` of all rows, in batches of at most `batch_rows` rows, one row group after another.

        So the memory of earlier row groups is freed. Raise `ContractError` for a missing column.
        """
        with self.place.open() as opened:
            table = pq.ParquetFile(opened, buffer_size=READ_BYTES)
            require(table.schema_arrow, columns, self.place)
            for group in range(table.num_row_groups):
                yield from table.iter_batches(batch_rows, row_groups=[group], columns=columns)

    def plain(self, wanted: Sequence[int]) -> Iterator[dict[str, Any]]:
        with self.place.open() as opened:
            table = pq.ParquetFile(opened)
            names, first = _plain(table.schema_arrow), 0
            for group in range(table.num_row_groups):
                after = first + table.metadata.row_group(group).num_rows
                if any(first <= row < after for row in wanted):
                    for batch in table.iter_batches(SHOWN_ROWS, row_groups=[group], columns=names):
                        yield from _taken(batch, wanted, first)
                        first += len(batch)
                first = after


@dataclass(frozen=True)
class LanceRows:
    """The rows of a partition in one version of a Lance table, or the whole table if `partition_column` is None."""

    partition: str
    place: Location
    partition_column: str | None
    version: int

    def table(self) -> Any:
        """Return the table in this version as a `lance.LanceDataset`."""
        return _versioned(self.place, self.version)

    def batches(self, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        require(self.table().schema, columns, self.place)
        settings = {"batch_size": batch_rows, "filter": self.own(), "scan_in_order": True}
        yield from self.table().scanner(columns=columns, **settings).to_batches()

    def plain(self, wanted: Sequence[int]) -> Iterator[dict[str, Any]]:
        first = 0
        for batch in self.batches(self.plain_columns(), SHOWN_ROWS):
            yield from _taken(batch, wanted, first)
            first += len(batch)
            if first > wanted[-1]:
                return

    def plain_columns(self) -> list[str]:
        """Return the names of the columns of texts, numbers, truth values and times, without the partition's column."""
        return [name for name in _plain(self.table().schema) if name != self.partition_column]

    def own(self) -> str | None:
        """Return the SQL condition that the partition's rows meet, or None for the whole table."""
        return f"{self.partition_column} = date '{self.partition}'" if self.partition_column else None


def newest_version(place: Location) -> int:
    """Return the number of the newest version of a Lance table."""
    found: int = _opened(place, None).version
    return found


@lru_cache(maxsize=4)
def _versioned(place: Location, version: int) -> Any:
    return _opened(place, version)


def _opened(place: Location, version: int | None) -> Any:
    lance: Any = require_extra("lance", "search in a Lance table", "plan")
    os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")  # otherwise it warns of a future change
    return lance.dataset(object_store_uri(place), version=version, storage_options=storage_options())


def require(schema: pa.Schema, columns: Sequence[str], place: Location) -> None:
    """Raise `ContractError`, which names `place`, if the schema lacks one of the columns."""
    if missing := [name for name in columns if name not in schema.names]:
        raise ContractError(f"{place}: expected a column {missing[0]}, found {', '.join(schema.names)}.")


def _taken(batch: pa.RecordBatch, wanted: Sequence[int], first: int) -> list[dict[str, Any]]:
    places = [row - first for row in wanted if first <= row < first + len(batch)]
    rows: list[dict[str, Any]] = batch.take(pa.array(places, pa.int64())).to_pylist() if places else []
    return rows


def _plain(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _is_plain(field.type)]


def _is_plain(kind: pa.DataType) -> bool:
    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return is_text or is_number or types.is_boolean(kind) or types.is_temporal(kind)
