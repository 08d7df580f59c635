"""Published rows as search reads them: Parquet files, and the partitions of a Lance table.

Both give batches of a few columns, the same rows in the same order each time, and afterwards those columns of matches
that a person wants to see: texts, numbers, truth values and times, not lists or bytes.
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

READ_BYTES = 4 * 2**20  # of a file at once: else a row group's whole column is
SHOWN_ROWS = 1024  # read at once for the columns that are shown


class Rows(Protocol):
    """Rows of one partition."""

    @property
    def partition(self) -> str: ...
    @property
    def place(self) -> Location: ...
    def batches(self, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows. Raises `ContractError` for a column that there is not."""

    def plain(self, wanted: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The plain columns of the rows at these 0-based places, which ascend."""


@dataclass(frozen=True)
class ParquetRows:
    """A published Parquet file and the partition that it belongs to."""

    partition: str
    place: Location

    def batches(self, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """One row group after another: else what was read of the earlier ones stays until the end."""
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
    """A partition of a Lance table in one version; the whole table where it has no column for the partition."""

    partition: str
    place: Location
    partition_column: str | None
    version: int

    def table(self) -> Any:
        """The `lance.LanceDataset`."""
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
        return [name for name in _plain(self.table().schema) if name != self.partition_column]

    def own(self) -> str | None:
        """The condition that the partition's rows meet."""
        return f"{self.partition_column} = date '{self.partition}'" if self.partition_column else None


def newest_version(place: Location) -> int:
    """Of a Lance table."""
    found: int = _opened(place, None).version
    return found


@lru_cache(maxsize=4)
def _versioned(place: Location, version: int) -> Any:
    return _opened(place, version)


def _opened(place: Location, version: int | None) -> Any:
    lance: Any = require_extra("lance", "search in a Lance table", "plan")
    os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")  # else it warns of what it will leave out one day
    return lance.dataset(object_store_uri(place), version=version, storage_options=storage_options())


def require(schema: pa.Schema, columns: Sequence[str], place: Location) -> None:
    """Raises `ContractError` where one of the columns is missing."""
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
