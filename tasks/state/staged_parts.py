"""Staged parts: Parquet files of finished rows, whose footers record the source rows that they settle.

A part `<attempt>-<task>.part` has the published columns, and `__unit` and `__row` unless each live source row is one of
its rows. The details of its quarantined rows are in `<attempt>-<task>.errors`, which is written first and counts only
if the part exists. Names sort by attempt: if parts overlap, the older part keeps the rows.
"""

import base64
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.run import FORMAT_VERSION
from overnight.tasks.storage.location import File, Location

PART, ERRORS = ".part", ".errors"
KEPT = "0-kept-"  # begins the names of parts with rows of an earlier publish, which `state/published_rows.py` settles
TAIL_BYTES = 2**16  # enough for the footer of a part that settles some thousand scattered rows
STAGES_KEY, VERSION_KEY = b"overnight.stages", b"overnight.format_version"
LEFT_OUT_KEY, COLUMNS_KEY = b"overnight.left_out", b"overnight.columns"
SOURCE_ROW = tuple(blocks.SOURCE_ROW.names)  # the columns that identify the source row of a row
QUARANTINE = pa.schema([(name, pa.string()) for name in ("row_id", "uri", "stage", "error_type", "error_message")])
DETAILS = pa.schema([*QUARANTINE, *blocks.SOURCE_ROW])
Measures = dict[str, dict[str, float]]  # stage -> its seconds, rows and bytes


@dataclass(frozen=True)
class Record:
    """The footer of a staged part, and which of its rows the publish drops."""

    name: str  # of the file, without `.part`
    ranges: pa.Table  # the source rows that it settles, with schema `row_ranges.RANGES`
    schema: pa.Schema
    rows: int
    size: int  # in bytes
    stages: Measures
    left_out: tuple[str, ...] = ()  # the columns that are not published
    dropped: np.ndarray | None = None  # a bool per row, True if it is not published; None if no rows were compared
    statistics: bytes | None = None  # of the columns, encoded; None for a part to merge, as the compression
    compression: str | None = None

    @property
    def is_kept(self) -> bool:
        """Return True if the part has rows of an earlier publish, without ranges."""
        return self.name.startswith(KEPT)

    @property
    def is_row_by_row(self) -> bool:
        """Return True if the part's rows are its live source rows, in the order of the ranges."""
        return "__unit" not in self.schema.names and not self.is_kept

    @property
    def columns(self) -> dict[str, dict[str, Any]]:
        """Return the statistics of the columns (`write/checks/column_statistics.py`); empty for a part to merge."""
        if not self.statistics:
            return {}
        return dict(json.loads(zlib.decompress(base64.b64decode(self.statistics))))

    @property
    def attempt(self) -> str:
        return self.name.rsplit("-", 1)[0]


def write_part(
    parts: Location,
    name: str,
    table: pa.Table,
    errors: pa.Table,
    ranges: pa.Table,
    stages: Measures,
    compression: str,
    left_out: Sequence[str] = (),
    columns: Mapping[str, Any] | None = None,
) -> None:
    """Write a part with the rows of `table`, and before it the details of its quarantined rows, with schema `DETAILS`.

    `__unit` and `__row` are left out if the ranges can replace them. A part without `columns` (statistics) is merged.
    """
    if len(errors):
        (parts / (name + ERRORS)).write_bytes(parquet_bytes(errors, "zstd"))
    metadata = {}
    if {*SOURCE_ROW} <= {*table.column_names}:
        units, numbers = row_ranges.columns_of(table, *SOURCE_ROW)
        ordered_ranges = row_ranges.in_row_order(units, numbers, ranges)
        if ordered_ranges is not None:
            table, ranges = table.drop_columns([*SOURCE_ROW]), ordered_ranges
            if columns is not None:
                metadata[COLUMNS_KEY] = base64.b64encode(zlib.compress(json.dumps(columns).encode()))
    metadata |= {
        row_ranges.KEY: row_ranges.encode(ranges),
        STAGES_KEY: json.dumps(stages).encode(),
        LEFT_OUT_KEY: json.dumps(list(left_out)).encode(),
        VERSION_KEY: str(FORMAT_VERSION).encode(),
    }
    (parts / (name + PART)).write_bytes(parquet_bytes(table.replace_schema_metadata(metadata), compression))


def parquet_bytes(table: pa.Table, compression: str) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=compression)
    return buffer.getvalue()


def arrow_bytes(table: pa.Table) -> bytes:
    """Return the bytes of an Arrow file with the table: it supports types that Parquet does not."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return bytes(buffer.getvalue())


def read_records(parts: Location) -> list[Record]:
    """Return the footers of all parts in a directory, sorted by name; an empty list if it does not exist."""
    try:
        files = list(parts.files((PART,)))
    except FileNotFoundError:
        return []
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda file: _read_record(parts, file), files))


def _read_record(parts: Location, file: File) -> Record:
    footer = _read_footer(parts / file.path)
    metadata = footer.metadata or {}
    version = metadata.get(VERSION_KEY)
    if version != str(FORMAT_VERSION).encode():
        raise ValueError(f"{parts / file.path}: expected format version {FORMAT_VERSION}, found {version!r}")
    compression = None
    if COLUMNS_KEY in metadata and footer.num_rows:
        compression = footer.row_group(0).column(0).compression
    return Record(
        name=file.path.removesuffix(PART),
        ranges=row_ranges.decode(metadata[row_ranges.KEY]),
        schema=footer.schema.to_arrow_schema().remove_metadata(),
        rows=footer.num_rows,
        size=file.size,
        stages=json.loads(metadata[STAGES_KEY]),
        left_out=tuple(json.loads(metadata.get(LEFT_OUT_KEY, b"[]"))),
        statistics=metadata.get(COLUMNS_KEY),
        compression=compression,
    )


def _read_footer(part: Location) -> pq.FileMetaData:
    """Return the footer, with one request if it is small: only its length and a magic word follow it in the file."""
    tail = part.read_tail(TAIL_BYTES)
    size = int.from_bytes(tail[-8:-4], "little") + 8
    if size > len(tail):
        tail = part.read_tail(size)
    return pq.read_metadata(pa.BufferReader(tail))


def read_part(parts: Location, record: Record, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a part with its columns among `columns`. None means all, and `__unit` and `__row`."""
    with (parts / (record.name + PART)).open() as file:
        table = pq.ParquetFile(file).read(None if columns is None else list(columns))
    if record.is_row_by_row:
        ranges = record.ranges if record.rows else row_ranges.RANGES.empty_table()  # the rows are published already
        for name, numbers in zip(SOURCE_ROW, row_ranges.rows_of(ranges), strict=True):
            if columns is None or name in columns:
                table = table.append_column(name, pa.array(numbers))
    return table


def read_errors(parts: Location, records: Sequence[Record], merged: pa.Table) -> pa.Table:
    """Return the details of all quarantined rows of the parts, each from the part that keeps the row in `merged`."""
    quarantine = merged.filter(pc.equal(merged["state"], blocks.QUARANTINED)).sort_by("part")
    bounds = np.searchsorted(quarantine["part"].to_numpy(), np.arange(len(records) + 1))

    def read(number: int) -> pa.Table:
        with (parts / (records[number].name + ERRORS)).open() as file:
            details = pq.ParquetFile(file).read()
        ranges = quarantine.slice(bounds[number], bounds[number + 1] - bounds[number])
        units, numbers = row_ranges.columns_of(details, *SOURCE_ROW)
        is_own = row_ranges.inside(units, numbers, ranges)
        return details.filter(pa.array(is_own)).select(QUARANTINE.names)

    with ThreadPoolExecutor(16) as pool:
        tables = pool.map(read, np.flatnonzero(np.diff(bounds)).tolist())
        return pa.concat_tables([QUARANTINE.empty_table(), *tables])
