"""The Parquet sink: `<path>/date=D/part-*.parquet`, plain Hive layout.

Publishing merges staged parts into files of `target_file_size`, as Ray tasks, and then changes the partition in one
moment: on local disks the directory is exchanged, elsewhere the new files are put under names never used before, the
receipt switches to them, and the old ones are removed.
"""

import ctypes
import os
import re
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from pydantic import Field, PositiveInt

from tasks import rows
from tasks.leaf import Leaf
from tasks.run_directory import Run
from tasks.settled import inside
from tasks.staging import PART, Record
from tasks.storage import Location, is_local
from tasks.write.publishable import common_schema, conform
from tasks.write.statistics import Columns, combine, describe

ROW_GROUP_BYTES = 64 * 2**20
AT_FDCWD, RENAME_EXCHANGE = -100, 2
PUBLISHED = re.compile(r"part-.+-\d{5}\.parquet")


class ParquetSink(Leaf):
    """Hive-partitioned Parquet files on any filesystem."""

    kind: Literal["parquet"] = "parquet"
    path: Annotated[str, Field(min_length=1, description="Directory of the table; ${ENV_VAR} expands.")]
    partition_column: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "date"
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = "zstd"
    target_file_size: Annotated[PositiveInt, Field(description="Bytes of a published file.")] = 128 * 2**20
    rows_per_part: Annotated[
        PositiveInt | None, Field(description="Rows of a staged part; default: about a minute's work.")
    ] = None
    keep: Annotated[list[str], Field(description="Heavy inputs to publish all the same, for example [image].")] = []

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> tuple[list[str], int, Columns]:
        """Merges the staged rows into files that readers do not see yet; their final names, rows and columns."""
        schema = common_schema(record.schema for record in records)
        fields = [field for field in schema if field.name not in ("__unit", "__row")]
        work, names = [], []
        for number, group in enumerate(_groups(records, merged, self.target_file_size)):
            names.append(f"part-{run.generation}-{run.attempt.rsplit('-', 1)[-1]}-{number:05d}.parquet")
            work.append(
                _merge.remote(run.parts, group, _prepared(run) / names[-1], pa.schema(fields), self.compression)
            )
        merges = ray.get(work)
        return names, sum(count for count, _ in merges), combine(columns for _, columns in merges)

    def prepared(self, run: Run, names: list[str]) -> list[Location]:
        """Where the files lie until the switch."""
        return [_prepared(run) / (name + PART) for name in names]

    def switch(self, run: Run, names: list[str]) -> None:
        """Makes the prepared files the partition's: in one step where the filesystem can, else beside the old ones."""
        filesystem, target = run.target.open_filesystem()
        _, source = _prepared(run).open_filesystem()
        if not is_local(filesystem):
            for name in names:
                filesystem.cp_file(f"{source}/{name}{PART}", f"{target}/{name}")
            return
        for name in names:
            os.rename(f"{source}/{name}{PART}", f"{source}/{name}")
        os.makedirs(source, exist_ok=True)
        if run.partition_directory:
            _exchange(source, target)
            for name in os.listdir(source) if os.path.isdir(source) else ():
                if not PUBLISHED.fullmatch(name):  # someone put it there meanwhile
                    os.rename(f"{source}/{name}", f"{target}/{name}")
            return
        os.makedirs(target, exist_ok=True)
        for name in names:
            os.rename(f"{source}/{name}", f"{target}/{name}")

    def discard(self, run: Run, old: list[str]) -> None:
        """Removes what is left of the partition's former files, paths below the sink that no receipt lists any more."""
        for path in old:
            (run.sink / path).remove()
        self.discard_prepared(run)

    def discard_prepared(self, run: Run) -> None:
        """Removes what this or earlier attempts at the partition prepared and did not switch to."""
        for name in run.sink.names():
            if name.startswith(f"_publishing-{run.partition}-"):
                (run.sink / name).remove()


def _prepared(run: Run) -> Location:
    """A hidden directory on the sink's own filesystem, so that a rename can move it into place."""
    return run.sink / f"_publishing-{run.partition}-{run.attempt}"


def _live(ranges: pa.Table) -> np.ndarray:
    return ranges["state"].to_numpy() == rows.LIVE


def _groups(records: list[Record], merged: pa.Table, target_bytes: int) -> list[list[tuple[str, pa.Table]]]:
    """Parts with the ranges to take from each, in groups of about `target_bytes`."""
    live = merged.filter(pa.array(_live(merged)))
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


@ray.remote(num_cpus=1, max_retries=3)
def _merge(
    parts: Location, group: list[tuple[str, pa.Table]], destination: Location, schema: pa.Schema, compression: str
) -> tuple[int, Columns]:
    """Writes one file from staged parts, taking from each the rows inside its ranges; its rows and its columns."""
    sink, pending, count, described = pa.BufferOutputStream(), [], 0, []
    with pq.ParquetWriter(sink, schema, compression=compression) as writer:
        for name, ranges in group:
            with (parts / (name + PART)).open() as file:
                table = pq.ParquetFile(file).read()
            table = conform(
                table.filter(pa.array(inside(table["__unit"].to_numpy(), table["__row"].to_numpy(), ranges))), schema
            )
            pending.append(table)
            described.append(describe(table))
            count += len(table)
            if sum(part.nbytes for part in pending) >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(pending))
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending))
    (destination.parent / (destination.name + PART)).write_bytes(sink.getvalue().to_pybytes())
    return count, combine(described)


def _exchange(source: str, target: str) -> None:
    """Puts the directory `source` in the place of `target`, in one step where there was one before."""
    if not os.path.isdir(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
        return
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange and not exchange(AT_FDCWD, source.encode(), AT_FDCWD, target.encode(), RENAME_EXCHANGE):
        return
    os.rename(target, f"{source}.old")  # no such call here: there is a moment without a directory, never a mixture
    os.rename(source, target)
    os.rename(f"{source}.old", source)
