"""Merge staged parts into the files of a publish, for all sinks. If there are several files, Ray tasks write them.

The rows are always merged into Parquet. For a sink that publishes another format, the same pass writes that too. A part
that already is such a file, large enough and with all its rows, becomes the file as it is: by a link or a copy.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from overnight.tasks.state.staged_parts import SOURCE_ROW, PART, Record, read_part
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.column_statistics import Columns, combine, describe
from overnight.tasks.write.merge.output_schema import common_schema, conform, is_json_text

ROW_GROUP_BYTES = 64 * 2**20
SMALLEST_FILE = 1 / 8  # of `target_bytes`: smaller parts are merged
COPIES_AT_ONCE = 8
# Takes rows and the name of their file without an ending; returns the rows that the file keeps.
SplitFunction = Callable[[pa.Table, str], pa.Table]
NO_CONSTANTS: Mapping[str, pa.Scalar] = {}


@dataclass(frozen=True)
class Taken:
    """A part, and the ranges of its rows to take. Rows that the part marks as `dropped` are left out."""

    part: Record
    ranges: pa.Table

    @property
    def is_whole(self) -> bool:
        """Return True if these are all rows of the part, as its footer shows."""
        dropped = self.part.dropped
        count = int(np.sum(self.ranges["stop"].to_numpy() - self.ranges["start"].to_numpy()))
        return self.part.is_row_by_row and count == self.part.rows and (dropped is None or not dropped.any())

    def read(self, parts: Location) -> pa.Table:
        """Return the rows with all columns of the part."""
        table, dropped = read_part(parts, self.part), self.part.dropped
        if self.is_whole:
            return table
        is_taken = inside(table["__unit"].to_numpy(), table["__row"].to_numpy(), self.ranges)
        return table.filter(pa.array(is_taken if dropped is None else is_taken & ~dropped))

    def is_file(self, schema: pa.Schema, compression: str) -> bool:
        """Return True if the part is a file of these columns and this compression, which can be published as it is."""
        part, name = self.part, "uncompressed" if compression == "none" else compression
        if part.compression != name.upper() or not part.schema.equals(schema, check_metadata=True) or not self.is_whole:
            return False
        kinds = {field.name: str(field.type) for field in schema if field.name not in blocks.IDENTITY}
        return kinds == {name: record["type"] for name, record in part.columns.items()}  # the file may have other types


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
    return pa.schema([field for field in schema if field.name not in SOURCE_ROW])


def staged_schema(records: list[Record]) -> pa.Schema:
    """Return the common schema of all columns of the staged parts, given the footers of the parts.

    It includes `__unit` and `__row` if a part has them. Columns of JSON text keep the metadata that marks them.
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

    def is_file(taken: Taken) -> bool:
        return not (form or constants or beside) and taken.is_file(schema, compression)

    copies, work = {}, {}
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        for number, group in enumerate(_groups(records, merged, target_bytes, is_file)):
            name = f"{prefix}{number:05d}"
            if len(group) == 1 and is_file(group[0]):
                copies[number] = pool.submit(_copied, parts, group[0].part, place, name, suffix)
            else:
                work[number] = (parts, group, place, name, suffix, schema, compression, form, constants, beside)
        if len(work) <= 1:  # a process of its own would take a second to start
            files = {number: _merge(*each) for number, each in work.items()}
        else:
            import ray

            remote = ray.remote(num_cpus=1, max_retries=3)(_merge)
            files = dict(zip(work, ray.get([remote.remote(*each) for each in work.values()]), strict=True))
        files |= {number: copy.result() for number, copy in copies.items()}
    return Prepared([files[number] for number in sorted(files)], schema)


def _copied(parts: Location, part: Record, place: Location, name: str, suffix: str) -> MergedFile:
    """Make a part a file to publish, as it is."""
    file = f"{name}.parquet"
    (parts / (part.name + PART)).copy_to(place / (file + suffix))
    return MergedFile(file, place / (file + suffix), part.rows, part.size, part.columns)


def _groups(
    records: list[Record], merged: pa.Table, target_bytes: int, is_file: Callable[[Taken], bool]
) -> list[list[Taken]]:
    """Return the rows to take from each part, in groups of about `target_bytes`; a part that is a file is a group."""
    live = merged.filter(pa.array(merged["state"].to_numpy() == blocks.LIVE))
    live = live.take(np.argsort(live["part"].to_numpy(), kind="stable"))
    bounds = np.searchsorted(live["part"].to_numpy(), np.arange(len(records) + 1))
    groups: list[list[Taken]] = []
    group: list[Taken] = []
    filled = 0
    for place, record in enumerate(records):
        taken = Taken(record, live[bounds[place] : bounds[place + 1]])
        if not len(taken.ranges) or not record.rows:  # a part of an earlier publish has no rows: its files stay
            continue
        if record.size >= SMALLEST_FILE * target_bytes and is_file(taken):
            groups.append([taken])
            continue
        if not group or filled + record.size > target_bytes:
            group, filled = [], 0
            groups.append(group)
        group.append(taken)
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
        for taken in group:
            table = conform(taken.read(parts), schema)
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
