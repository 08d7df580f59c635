"""Staged parts: Parquet files that hold finished rows and, in their footer, what they settle.

A part `<attempt>-<task>.part` has the published columns and `__unit`, `__row`. Its quarantine details lie in
`<attempt>-<task>.errors`, written before it: they count only if the part exists. Names sort by attempt, so that where
parts overlap the older wins.
"""

import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tasks import rows, settled
from tasks.run_directory import FORMAT_VERSION
from tasks.storage import Location

PART, ERRORS = ".part", ".errors"
STAGES_KEY, VERSION_KEY = b"overnight.stages", b"overnight.format_version"
QUARANTINE = pa.schema([(name, pa.string()) for name in ("row_id", "uri", "stage", "error_type", "error_message")])
DETAILS = pa.schema([*QUARANTINE, ("__unit", pa.int64()), ("__row", pa.int64())])
Measures = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Record:
    """What a part's footer says. `size` in bytes; `stages`: seconds, rows and bytes by stage of the rows it settles."""

    name: str
    ranges: pa.Table
    schema: pa.Schema
    rows: int
    size: int
    stages: Measures

    @property
    def attempt(self) -> str:
        return self.name.rsplit("-", 1)[0]


def write_part(
    parts: Location, name: str, table: pa.Table, errors: pa.Table, ranges: pa.Table, stages: Measures, compression: str
) -> None:
    """Stages `table`, then it counts. `errors` has schema `DETAILS`, `ranges` that of `settled.RANGES`."""
    if len(errors):
        (parts / (name + ERRORS)).write_bytes(parquet_bytes(errors, "zstd"))
    metadata = {
        settled.KEY: settled.encode(ranges),
        STAGES_KEY: json.dumps(stages).encode(),
        VERSION_KEY: str(FORMAT_VERSION).encode(),
    }
    (parts / (name + PART)).write_bytes(parquet_bytes(table.replace_schema_metadata(metadata), compression))


def parquet_bytes(table: pa.Table, compression: str) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=compression)
    return buffer.getvalue()


def read_records(parts: Location) -> list[Record]:
    """The footers of all finished parts, by name."""
    names = [name for name in parts.names() if name.endswith(PART)]
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda name: _read_record(parts, name), names))


def _read_record(parts: Location, name: str) -> Record:
    with (parts / name).open() as file:
        opened = pq.ParquetFile(file)
        schema, rows = opened.schema_arrow, opened.metadata.num_rows
        size = file.seek(0, io.SEEK_END)
    metadata = schema.metadata or {}
    if metadata.get(VERSION_KEY) != str(FORMAT_VERSION).encode():
        raise ValueError(
            f"{parts / name}: expected format version {FORMAT_VERSION}, found {metadata.get(VERSION_KEY)!r}"
        )
    return Record(
        name=name.removesuffix(PART),
        ranges=settled.decode(metadata[settled.KEY]),
        schema=schema.remove_metadata(),
        rows=rows,
        size=int(size or 0),
        stages=json.loads(metadata[STAGES_KEY]),
    )


def read_errors(parts: Location, records: Sequence[Record]) -> pa.Table:
    """Quarantine details (schema `QUARANTINE`) of the parts that exist, of the rows that each part settles as such.

    A row that an earlier part wrote, or quarantined for its own reason, is left to that part.
    """
    names = set(parts.names())
    merged = settled.merge([record.ranges for record in records])
    merged = merged.filter(pa.array(merged["state"].to_numpy() == rows.QUARANTINED))
    tables = [QUARANTINE.empty_table()]
    for place, record in enumerate(records):
        if record.name + ERRORS in names:
            details = pq.read_table(io.BytesIO((parts / (record.name + ERRORS)).read_bytes()))
            ranges = merged.filter(pa.array(merged["part"].to_numpy() == place))
            own = settled.inside(details["__unit"].to_numpy(), details["__row"].to_numpy(), ranges)
            tables.append(details.filter(pa.array(own)).select(QUARANTINE.names))
    return pa.concat_tables(tables)
