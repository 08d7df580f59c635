"""Merge staged parts into the files of a publish, for all sinks. If there are several files, Ray tasks write them.

The rows are always merged into Parquet. For a sink that publishes another format, the same pass writes that too. A part
that already is such a file, large enough and with all its rows, becomes the file as it is: by a link or a copy.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.rows import blocks
from overnight.tasks.rows.arrow_types import columns_except
from overnight.tasks.state.published_rows import PublishedRows
from overnight.tasks.state.row_ranges import inside
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import PART, SOURCE_ROW, Record, read_part
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.stores import Stores, in_use
from overnight.tasks.write.checks.column_statistics import Columns, combine, describe
from overnight.tasks.write.merge.output_schema import common_schema, conform, is_json_text

ROW_GROUP_BYTES = 64 * 2**20
SMALLEST_FILE = 1 / 8  # of `target_bytes`: smaller parts are merged
COPIES_AT_ONCE = 8
# Takes rows and the name of their file without an ending; returns the rows that the file keeps.
SplitFunction = Callable[[pa.Table, str], pa.Table]
WriteTable = Callable[[pa.Table], None]


@dataclass(frozen=True)
class Selection:
    """A part, and the ranges of its rows to publish. Rows that the part marks as `dropped` are left out."""

    part: Record
    ranges: pa.Table

    @property
    def is_whole(self) -> bool:
        """Return True if these are all rows of the part, as its footer shows."""
        if self.part.is_kept:
            return True
        dropped = self.part.dropped
        count = int(np.sum(self.ranges["stop"].to_numpy() - self.ranges["start"].to_numpy()))
        return self.part.is_row_by_row and count == self.part.rows and (dropped is None or not dropped.any())

    def read(self, parts: Location) -> pa.Table:
        table = read_part(parts, self.part)
        if self.is_whole:
            return table
        is_own = inside(table["__unit"].to_numpy(), table["__row"].to_numpy(), self.ranges)
        if self.part.dropped is not None:
            is_own &= ~self.part.dropped
        return table.filter(pa.array(is_own))


@dataclass(frozen=True)
class MergedFile:
    """A file that a publish will make visible under `name`, with the statistics of its `columns`.

    Until the commit, `place` is a Parquet file of its rows, with `bytes` bytes.
    """

    name: str
    place: Location
    rows: int
    bytes: int
    columns: Columns


@dataclass(frozen=True)
class Prepared:
    """The content of a publish before it is visible: its new files, and their common `schema`.

    `uncommitted` are objects that the sink commits instead of the files, such as fragments of a Lance table. `kept` are
    published rows that stay; if it is None, the files replace the partition.
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
        statistics = [file.columns for file in self.files]
        if self.kept:
            statistics.insert(0, self.kept.columns)
        return combine(statistics)


@dataclass(frozen=True)
class OutputFormat:
    """A format of published files other than Parquet: files in `place` whose names end in `extension`.

    `open` takes a file and the schema of its rows, and returns a context with a function that writes a table to the
    file. It must be picklable.
    """

    place: Location
    extension: str
    open: Callable[[BinaryIO, pa.Schema], AbstractContextManager[WriteTable]]


def published_schema(records: list[Record]) -> pa.Schema:
    """Return the common schema of the published columns of staged parts. Raise `ContractError` for unlike types."""
    return columns_except(common_schema(record.schema for record in records), SOURCE_ROW)


def staged_schema(records: list[Record]) -> pa.Schema:
    """Return the common schema of all columns of the staged parts. JSON text keeps the metadata that marks it."""
    marks: dict[str, pa.Field] = {}
    for record in records:
        marks |= {column.name: column for column in record.schema if is_json_text(column)}
    return pa.schema([marks.get(column.name, column) for column in common_schema(record.schema for record in records)])


def merged_rows(run: Run) -> Location:
    """Return the directory for a Parquet copy of the rows that an attempt publishes in another format.

    It is in the directory of the staged parts, and is removed with it.
    """
    return run.parts / f"_merged-{run.attempt}"


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
    constants: Mapping[str, pa.Scalar] | None = None,
    beside: SplitFunction | None = None,
) -> Prepared:
    """Write the rows to publish as Parquet files of about `target_bytes`, `<prefix><number>.parquet<suffix>`.

    Returned names lack the suffix; with a `form`, they name its files. `beside` may write some values to other files.
    """
    writer = FileWriter(parts, place, suffix, schema, compression, form, constants or {}, beside)
    groups = _groups(records, merged, target_bytes, writer.can_copy)
    names = [f"{prefix}{number:05d}" for number in range(len(groups))]
    files: dict[str, MergedFile] = {}
    work = {}
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        copies = {}
        for name, group in zip(names, groups, strict=True):
            if len(group) == 1 and writer.can_copy(group[0]):
                copies[name] = pool.submit(writer.copy, group[0].part, name)
            else:
                work[name] = group
        if len(work) <= 1:  # a process of its own would take a second to start
            for name, group in work.items():
                files[name] = writer.write(group, name)
        else:
            import ray

            remote = ray.remote(num_cpus=1, max_retries=3)(FileWriter.write)
            results = ray.get([remote.remote(writer, group, name) for name, group in work.items()])
            files.update(zip(work, results, strict=True))
        for name, copy in copies.items():
            files[name] = copy.result()
    return Prepared([files[name] for name in names], schema)


def selections(records: list[Record], merged: pa.Table) -> list[Selection]:
    """Return the rows to take from each part, which are the live rows in its ranges of `merged`."""
    live = merged.filter(pa.array(merged["state"].to_numpy() == blocks.LIVE))
    live = live.take(np.argsort(live["part"].to_numpy(), kind="stable"))
    bounds = np.searchsorted(live["part"].to_numpy(), np.arange(len(records) + 1)).tolist()
    return [
        Selection(record, live[start:stop]) for record, (start, stop) in zip(records, pairwise(bounds), strict=True)
    ]


def _groups(
    records: list[Record], merged: pa.Table, target_bytes: int, can_copy: Callable[[Selection], bool]
) -> list[list[Selection]]:
    """Return the rows to take from each part, in groups of about `target_bytes`; a part that is a file is a group."""
    groups: list[list[Selection]] = []
    group: list[Selection] = []
    size = 0
    for selection in selections(records, merged):
        record = selection.part
        is_settled = len(selection.ranges) or record.is_kept
        if not is_settled or not record.rows:  # the record of an earlier publish has no rows: its files stay
            continue
        if record.size >= SMALLEST_FILE * target_bytes and can_copy(selection):
            groups.append([selection])
            continue
        if not group or size + record.size > target_bytes:
            group, size = [], 0
            groups.append(group)
        group.append(selection)
        size += record.size
    return groups


@dataclass(frozen=True)
class FileWriter:
    """Writes files of staged rows. The fields are arguments of `merge`. A Ray task may run `write`."""

    parts: Location
    place: Location
    suffix: str
    schema: pa.Schema
    compression: str
    form: OutputFormat | None = None
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    beside: SplitFunction | None = None
    stores: Stores = field(default_factory=in_use)  # by which the task reaches places in S3

    def can_copy(self, selection: Selection) -> bool:
        """Return True if the part is a file of these columns and this compression, which can be published as it is."""
        part, compression = selection.part, self.compression.replace("none", "uncompressed").upper()
        if self.form or self.constants or self.beside or part.compression != compression:
            return False
        if not part.schema.equals(self.schema, check_metadata=True) or not selection.is_whole:
            return False
        types = {column.name: str(column.type) for column in self.schema if column.name not in blocks.IDENTITY}
        return types == {name: record["type"] for name, record in part.columns.items()}  # the file may have other types

    def copy(self, part: Record, name: str) -> MergedFile:
        """Make a part a file to publish, as it is."""
        target = self.place / f"{name}.parquet{self.suffix}"
        (self.parts / (part.name + PART)).copy_to(target)
        return MergedFile(f"{name}.parquet", target, part.rows, part.size, part.columns)

    def write(self, group: list[Selection], name: str) -> MergedFile:
        """Write one file, from each part the rows inside its ranges that are not dropped."""
        rows, statistics, pending = 0, [], []
        buffer, extension = pa.BufferOutputStream(), ".parquet"
        with contextlib.ExitStack() as stack:
            parquet = stack.enter_context(pq.ParquetWriter(buffer, self._schema(name), compression=self.compression))
            writers: list[WriteTable] = [parquet.write_table]
            if self.form:
                extension = self.form.extension
                file = stack.enter_context((self.form.place / f"{name}{extension}{PART}").writing())
                writers.append(stack.enter_context(self.form.open(file, self.schema)))
            for selection in group:
                table = conform(selection.read(self.parts), self.schema)
                if self.beside:
                    table = self.beside(table, name)
                statistics.append(describe(table))
                for column, value in self.constants.items():
                    table = table.append_column(column, pa.repeat(value, len(table)))
                pending.append(table)
                rows += len(table)
                if sum(table.nbytes for table in pending) >= ROW_GROUP_BYTES:
                    _write(pending, writers)
            if pending:
                _write(pending, writers)
        content, target = buffer.getvalue(), self.place / f"{name}.parquet{self.suffix}"
        target.write_bytes(content.to_pybytes())
        return MergedFile(f"{name}{extension}", target, rows, content.size, combine(statistics))

    def _schema(self, name: str) -> pa.Schema:
        """Return the columns of the Parquet files."""
        schema = self.schema
        if self.beside:
            schema = self.beside(schema.empty_table(), name).schema
        constants = [pa.field(column, value.type) for column, value in self.constants.items()]
        return pa.schema([*schema, *constants])


def _write(tables: list[pa.Table], writers: list[WriteTable]) -> None:
    """Write the tables as one row group, and clear the list."""
    table = pa.concat_tables(tables)
    for write in writers:
        write(table)
    tables.clear()
