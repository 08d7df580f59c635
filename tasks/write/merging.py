"""Merging staged parts into files to publish, as Ray tasks if there are several; what all sinks of files share."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from tasks import rows
from tasks.settled import inside
from tasks.staging import PART, Record
from tasks.storage import Location
from tasks.write.publishable import common_schema, conform
from tasks.write.statistics import Columns, combine, describe

ROW_GROUP_BYTES = 64 * 2**20
HIDDEN = ("__unit", "__row")


@dataclass(frozen=True)
class MergedFile:
    """A file that was merged: its final name, where it lies until the switch, its rows, size in bytes and columns."""

    name: str
    place: Location
    rows: int
    bytes: int
    columns: Columns


@dataclass(frozen=True)
class Prepared:
    """What a publish would make visible: its files, and the columns and types that they all have."""

    files: list[MergedFile]
    schema: pa.Schema

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def columns(self) -> Columns:
        """The statistics of all rows, by column."""
        return combine(file.columns for file in self.files)


def published_schema(records: list[Record]) -> pa.Schema:
    """The one schema of all that the parts publish. Raises `ContractError` where their types cannot be reconciled."""
    schema = common_schema(record.schema for record in records)
    return pa.schema([field for field in schema if field.name not in HIDDEN])


def merge(
    parts: Location,
    records: list[Record],
    merged: pa.Table,
    schema: pa.Schema,
    place: Location,
    prefix: str,
    suffix: str,
    compression: str,
    target_bytes: int,
) -> Prepared:
    """Writes the rows that `merged` takes of each part as Parquet files of `schema` and about `target_bytes`.

    They lie in `place` as `<prefix><number>.parquet<suffix>`; the names returned are without the suffix.
    """
    work = [
        (parts, group, place, f"{prefix}{number:05d}.parquet", suffix, schema, compression)
        for number, group in enumerate(_groups(records, merged, target_bytes))
    ]
    if len(work) == 1:  # a process of its own would take a second to start
        return Prepared([_merge(*work[0])], schema)
    remote = ray.remote(num_cpus=1, max_retries=3)(_merge)
    return Prepared(list(ray.get([remote.remote(*one) for one in work])), schema)


def _groups(records: list[Record], merged: pa.Table, target_bytes: int) -> list[list[tuple[str, pa.Table]]]:
    """Parts with the ranges to take from each, in groups of about `target_bytes`."""
    live = merged.filter(pa.array(merged["state"].to_numpy() == rows.LIVE))
    live = live.take(np.argsort(live["part"].to_numpy(), kind="stable"))
    bounds = np.searchsorted(live["part"].to_numpy(), np.arange(len(records) + 1))
    groups: list[list[tuple[str, pa.Table]]] = []
    filled = 0
    for place, record in enumerate(records):
        ranges = live[bounds[place] : bounds[place + 1]]
        if not len(ranges):
            continue
        if not groups or filled + record.size > target_bytes:
            groups.append([])
            filled = 0
        groups[-1].append((record.name, ranges))
        filled += record.size
    return groups


def _merge(
    parts: Location,
    group: list[tuple[str, pa.Table]],
    place: Location,
    name: str,
    suffix: str,
    schema: pa.Schema,
    compression: str,
) -> MergedFile:
    """Writes one file from staged parts, taking from each the rows inside its ranges."""
    sink, pending, count, described = pa.BufferOutputStream(), [], 0, []
    with pq.ParquetWriter(sink, schema, compression=compression) as writer:
        for part, ranges in group:
            with (parts / (part + PART)).open() as file:
                table = pq.ParquetFile(file).read()
            table = conform(
                table.filter(pa.array(inside(table["__unit"].to_numpy(), table["__row"].to_numpy(), ranges))), schema
            )
            pending.append(table)
            described.append(describe(table))
            count += len(table)
            if sum(chunk.nbytes for chunk in pending) >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(pending))
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending))
    content = sink.getvalue()
    (place / (name + suffix)).write_bytes(content.to_pybytes())
    return MergedFile(name, place / (name + suffix), count, content.size, combine(described))
