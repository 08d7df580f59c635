"""Merge staged parts into the files of a publish, for all sinks. If there are several files, Ray tasks write them.

The rows are always merged into Parquet. For a sink that publishes another format, the same pass writes that too.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.rows import blocks
from overnight.tasks.state.published_rows import PublishedRows
from overnight.tasks.state.row_ranges import inside
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import PART, Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.column_statistics import Columns, combine, describe
from overnight.tasks.write.merge.output_schema import common_schema, conform, is_json_text

ROW_GROUP_BYTES = 64 * 2**20
# Takes rows and the name of their file without an ending; returns the rows that the file keeps.
SplitFunction = Callable[[pa.Table, str], pa.Table]
# The name of a part, the ranges of its rows to take, and a bool per row, True to drop it; None to drop no row.
Taken = tuple[str, pa.Table, np.ndarray | None]
HIDDEN = ("__unit", "__row")
NO_CONSTANTS: Mapping[str, pa.Scalar] = {}


@dataclass(frozen=True)
class MergedFile:
    """A file that a publish will make visible, before the commit.

    `name` is its final name. `place` is a Parquet file with its `rows` rows until the commit, and `bytes` is the size
    of that file. `columns` has the statistics of its columns.
    """

    name: str
    place: Location
    rows: int
    bytes: int
    columns: Columns


@dataclass(frozen=True)
class Prepared:
    """The content of a publish before it is visible: its new files, and their common `schema`.

    `uncommitted` has the objects that the sink commits instead of the files, such as the fragments of a Lance table.
    `kept` are published rows that stay; if it is None, the files replace the partition.
    """

    files: list[MergedFile]
    schema: pa.Schema
    uncommitted: Sequence[Any] = ()
    kept: PublishedRows | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows in the new files, and of the rows `kept`."""
        return sum(file.rows for file in self.files) + (self.kept.rows if self.kept else 0)

    @property
    def columns(self) -> Columns:
        """Return the statistics of the rows in the new files and of the rows `kept`, as column -> record."""
        return combine([*([self.kept.columns] if self.kept else []), *(file.columns for file in self.files)])


@dataclass(frozen=True)
class OutputFormat:
    """A format of published files other than Parquet.

    `place` is the directory of the files, and their names end in `extension`, such as `.csv`. `open` takes a file and
    the schema of its rows. It returns a context with a function that writes a table to the file. `open` must be
    picklable.
    """

    place: Location
    extension: str
    open: Callable[[BinaryIO, pa.Schema], AbstractContextManager[Callable[[pa.Table], None]]]


def published_schema(records: list[Record]) -> pa.Schema:
    """Return the common schema of the published columns of all staged parts, given the footers of the parts.

    Raise `ContractError` if a column's types are incompatible.
    """
    schema = common_schema(record.schema for record in records)
    return pa.schema([field for field in schema if field.name not in HIDDEN])


def staged_schema(records: list[Record]) -> pa.Schema:
    """Return the common schema of all columns of the staged parts, given the footers of the parts.

    It includes `__unit` and `__row`. Columns whose values became JSON text keep the metadata that marks them.
    """
    marks = {field.name: field for record in records for field in record.schema if is_json_text(field)}
    schema = common_schema(record.schema for record in records)
    return pa.schema([marks.get(field.name, field) for field in schema])


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
    form: OutputFormat | None = None,
    constants: Mapping[str, pa.Scalar] = NO_CONSTANTS,
    beside: SplitFunction | None = None,
) -> Prepared:
    """Write the rows to publish as Parquet files of about `target_bytes`, with the columns and types of `schema`.

    The files are in `place` as `<prefix><number>.parquet<suffix>`; the returned names have no suffix. With a `form`,
    the same rows are also written in that format, in its own place, as `<prefix><number><extension>.part`. The returned
    names are then the names of these files without `.part`.

    Args:
        parts: The directory of the staged parts.
        records: The footers of these parts. Rows that they mark as `dropped` are left out.
        merged: The ranges of the rows to take from the parts, from `row_ranges.merge`.
        compression: The compression of the Parquet files.
        constants: Further columns of the Parquet files: name -> the value of all rows.
        beside: A function that takes rows and the name of their file without an ending. It may write some values to
            other
        files. It returns the rows for the Parquet file.
    """
    work = [
        (parts, group, place, f"{prefix}{number:05d}", suffix, schema, compression, form, constants, beside)
        for number, group in enumerate(_groups(records, merged, target_bytes))
    ]
    if len(work) <= 1:  # a process of its own would take a second to start
        return Prepared([_merge(*one) for one in work], schema)
    import ray

    remote = ray.remote(num_cpus=1, max_retries=3)(_merge)
    return Prepared(list(ray.get([remote.remote(*one) for one in work])), schema)


def _groups(records: list[Record], merged: pa.Table, target_bytes: int) -> list[list[Taken]]:
    """Return the rows to take from each part, in groups of about `target_bytes`."""
    live = merged.filter(pa.array(merged["state"].to_numpy() == blocks.LIVE))
    live = live.take(np.argsort(live["part"].to_numpy(), kind="stable"))
    bounds = np.searchsorted(live["part"].to_numpy(), np.arange(len(records) + 1))
    groups: list[list[Taken]] = []
    filled = 0
    for place, record in enumerate(records):
        ranges = live[bounds[place] : bounds[place + 1]]
        if not len(ranges) or not record.rows:  # a part of an earlier publish has no rows: its files stay
            continue
        if not groups or filled + record.size > target_bytes:
            groups.append([])
            filled = 0
        groups[-1].append((record.name, ranges, record.dropped))
        filled += record.size
    return groups


def merged_rows(run: Run) -> Location:
    """Return the directory for a Parquet copy of the rows that an attempt publishes in another format.

    It is in the directory of the staged parts, and is removed with it.
    """
    return run.parts / f"_merged-{run.attempt}"


def _merge(
    parts: Location,
    group: list[Taken],
    place: Location,
    name: str,
    suffix: str,
    schema: pa.Schema,
    compression: str,
    form: OutputFormat | None,
    constants: Mapping[str, pa.Scalar],
    beside: SplitFunction | None,
) -> MergedFile:
    """Write one file from staged parts, taking from each the rows inside its ranges that are not dropped."""
    file = f"{name}.parquet"
    sink, pending, count, described = pa.BufferOutputStream(), [], 0, []
    held = beside(schema.empty_table(), name).schema if beside else schema
    whole = pa.schema([*held, *((column, value.type) for column, value in constants.items())])
    with contextlib.ExitStack() as opened:
        takers = [opened.enter_context(pq.ParquetWriter(sink, whole, compression=compression)).write_table]
        if form:
            file = name + form.extension
            takers.append(
                opened.enter_context(form.open(opened.enter_context((form.place / (file + PART)).writing()), schema))
            )
        for part, ranges, dropped in group:
            with (parts / (part + PART)).open() as staged:
                table = pq.ParquetFile(staged).read()
            taken = inside(table["__unit"].to_numpy(), table["__row"].to_numpy(), ranges)
            table = conform(table.filter(pa.array(taken if dropped is None else taken & ~dropped)), schema)
            if beside:
                table = beside(table, name)
            described.append(describe(table))
            for column, value in constants.items():
                table = table.append_column(column, pa.repeat(value, len(table)))
            pending.append(table)
            count += len(table)
            if sum(chunk.nbytes for chunk in pending) >= ROW_GROUP_BYTES:
                _hand_over(pending, takers)
                pending = []
        if pending:
            _hand_over(pending, takers)
    content = sink.getvalue()
    rows_place = place / (f"{name}.parquet" + suffix)
    rows_place.write_bytes(content.to_pybytes())
    return MergedFile(file, rows_place, count, content.size, combine(described))


def _hand_over(tables: list[pa.Table], takers: list[Callable[[pa.Table], None]]) -> None:
    joined = pa.concat_tables(tables)
    for take in takers:
        take(joined)
