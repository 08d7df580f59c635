"""Staged parts: Parquet files with finished rows, and a footer with the rows that they settle.

A part `<attempt>-<task>.part` has the published columns and `__unit`, `__row`. Its quarantine details are in
`<attempt>-<task>.errors`, written before it: they count only if the part exists. Names sort by attempt, so that the
older part wins if parts overlap.
"""

import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.run import FORMAT_VERSION
from overnight.tasks.storage.location import File, Location

PART, ERRORS = ".part", ".errors"
TAIL_BYTES = 2**16  # the footer of a part that settles some thousand scattered rows
STAGES_KEY, VERSION_KEY = b"overnight.stages", b"overnight.format_version"
LEFT_OUT_KEY = b"overnight.left_out"
QUARANTINE = pa.schema([(name, pa.string()) for name in ("row_id", "uri", "stage", "error_type", "error_message")])
DETAILS = pa.schema([*QUARANTINE, ("__unit", pa.int64()), ("__row", pa.int64())])
Measures = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Record:
    """The footer of a part. `size` in bytes; `stages`: seconds, rows and bytes by stage of the rows that it settles.

    `left_out` are columns of its rows that are not published. `dropped` has a bool for each row, True if a row is not
    published because it is a duplicate; None if no row was compared.
    """

    name: str
    ranges: pa.Table
    schema: pa.Schema
    rows: int
    size: int
    stages: Measures
    left_out: tuple[str, ...] = ()
    dropped: np.ndarray | None = None

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
) -> None:
    """Stage `table`; its rows then count. `errors` has schema `DETAILS`, `ranges` that of `row_ranges.RANGES`."""
    if len(errors):
        (parts / (name + ERRORS)).write_bytes(parquet_bytes(errors, "zstd"))
    metadata = {
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
    """Return the table as an Arrow file, which supports types that Parquet does not."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return bytes(buffer.getvalue())


def read_records(parts: Location) -> list[Record]:
    """Return the footers of all finished parts, by name."""
    try:
        files = list(parts.files((PART,)))
    except FileNotFoundError:
        return []
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda file: _read_record(parts, file), files))


def _read_record(parts: Location, file: File) -> Record:
    footer = _read_footer(parts / file.path)
    metadata = footer.metadata or {}
    if metadata.get(VERSION_KEY) != str(FORMAT_VERSION).encode():
        raise ValueError(
            f"{parts / file.path}: expected format version {FORMAT_VERSION}, found {metadata.get(VERSION_KEY)!r}"
        )
    return Record(
        name=file.path.removesuffix(PART),
        ranges=row_ranges.decode(metadata[row_ranges.KEY]),
        schema=footer.schema.to_arrow_schema().remove_metadata(),
        rows=footer.num_rows,
        size=file.size,
        stages=json.loads(metadata[STAGES_KEY]),
        left_out=tuple(json.loads(metadata.get(LEFT_OUT_KEY, b"[]"))),
    )


def _read_footer(part: Location) -> pq.FileMetaData:
    """Return the footer, with one request if it is small: only its length and a magic word follow it in the file."""
    tail = part.read_tail(TAIL_BYTES)
    needed = int.from_bytes(tail[-8:-4], "little") + 8
    return pq.read_metadata(pa.BufferReader(tail if needed <= len(tail) else part.read_tail(needed)))


def read_errors(parts: Location, records: Sequence[Record], merged: pa.Table) -> pa.Table:
    """Return quarantine details (schema `QUARANTINE`) of the parts that exist, for the rows that each part quarantines.

    `merged` are the records' ranges, merged. If an earlier part wrote a row, or quarantined it for another reason, that
    part has the row.
    """
    quarantined = merged.filter(pc.equal(merged["state"], blocks.QUARANTINED)).sort_by("part")
    bounds = np.searchsorted(quarantined["part"].to_numpy(), np.arange(len(records) + 1))
    wanted = np.flatnonzero(np.diff(bounds))

    def read(place: int) -> pa.Table:
        with (parts / (records[place].name + ERRORS)).open() as file:
            details = pq.ParquetFile(file).read()
        ranges = quarantined.slice(bounds[place], bounds[place + 1] - bounds[place])
        own = row_ranges.inside(details["__unit"].to_numpy(), details["__row"].to_numpy(), ranges)
        return details.filter(pa.array(own)).select(QUARANTINE.names)

    with ThreadPoolExecutor(16) as pool:
        return pa.concat_tables([QUARANTINE.empty_table(), *pool.map(read, wanted.tolist())])
