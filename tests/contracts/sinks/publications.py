"""Staged rows and whole publishes of them, without the stream that would come before."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import sqlalchemy as sa
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.schema import CreateSchema, DropSchema

from overnight.tasks.config.partition_names import partition_values
from overnight.tasks.state import lease, row_ranges, staged_parts
from overnight.tasks.state.publications import publications
from overnight.tasks.state.published_rows import PublishedRows
from overnight.tasks.state.run import Run, now, read_json
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.column_statistics import describe, summary
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.publish.continued import described
from overnight.tasks.write.publish.publish import prepared, publish
from overnight.tasks.write.publish.undo import publish_earlier
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.sinks.csv import CsvSink
from overnight.tasks.write.sinks.delta import DeltaSink
from overnight.tasks.write.sinks.hive_files import HiveFiles
from overnight.tasks.write.sinks.iceberg import IcebergSink
from overnight.tasks.write.sinks.images import ImagesSink
from overnight.tasks.write.sinks.jsonl import JsonlSink
from overnight.tasks.write.sinks.lance import LanceSink
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.sinks.sql import SqlSink
from overnight.tasks.write.tables import iceberg, lance
from overnight.tasks.write.tables.delta import open_table
from overnight.tasks.write.tables.sql import engine
from tests.tasks.runs import make_run

POSTGRESQL = "postgresql+psycopg://${PGUSER}:${PGPASSWORD}@${PGHOST}:${PGPORT}/postgres"  # of the fixture postgres
PATHS = ("a", "ab", "c")  # of the units that are staged
NO_ERRORS = staged_parts.QUARANTINE.empty_table()


def numbered(place: Path | str, number: int, partition: str = "2026-01-02", **changes: Any) -> Run:
    """The attempt of this number, in a generation of its own."""
    return make_run(place, partition, generation=f"g{number:03d}", attempt=f"t-{number:06d}", **changes)


@contextlib.contextmanager
def holding(run: Run) -> Iterator[Run]:
    """The run with its partition's lease."""
    with lease.held(run.ledger, run.attempt) as token:
        yield replace(run, token=token)


def stage(run: Run, *parts: dict[str, Any], first: int = 0, units: Sequence[Sequence[int]] = ()) -> None:
    """Parts with these columns; rows are numbered through, from `first` on.

    `units` has the unit of each row of each part; without it, all are 0.
    """
    for number, columns in enumerate(parts):
        table = pa.table(columns)
        own = list(units[number]) if units else [0] * len(table)
        rows = range(first, first := first + len(table))
        row_ids = [f"{PATHS[unit]}#{row}" for unit, row in zip(own, rows, strict=True)]
        table = table.append_column("row_id", pa.array(row_ids, pa.string()))
        for name, numbers in (("__unit", own), ("__row", list(rows))):
            table = table.append_column(name, pa.array(numbers, pa.int64()))
        described = describe(table.drop_columns(["__unit", "__row"]))
        ranges = [
            {"unit": unit, "start": row, "stop": row + 1, "state": 0} for unit, row in zip(own, rows, strict=True)
        ]
        staged_parts.write_part(
            run.parts,
            f"{run.attempt}-{number:06d}",
            table,
            staged_parts.DETAILS.empty_table(),
            pa.Table.from_pylist(ranges, row_ranges.RANGES),
            {},
            "zstd",
            columns=described,
        )


def records_of(run: Run) -> tuple[list[staged_parts.Record], pa.Table]:
    records = staged_parts.read_records(run.parts)
    return records, row_ranges.merge([record.ranges for record in records])


def receipt_of(run: Run, sink: Sink, ready: Prepared) -> dict[str, Any]:
    files = [*(ready.kept.files if ready.kept else ()), *sink.published(run, ready)]
    about = {name: getattr(run, name) for name in ("job", "partition", "generation", "attempt")}
    counts = {"rows_in": ready.rows, "rows_out": ready.rows, "rows_quarantined": 0}
    columns = {"columns": summary(ready.columns, ())}
    return {**about, **counts, "files": files, **columns, "fingerprint": run.fingerprint, "finished_at": now()}


def kept_of(files: list[str], columns: dict[str, Any]) -> PublishedRows:
    """The rows with these columns that were published in the files, for a publish that keeps them."""
    table = pa.table(columns)
    return PublishedRows(tuple(files), len(table), described(table.schema), describe(table))


@contextlib.contextmanager
def ready_to_publish(run: Run, sink: Sink, kept: PublishedRows | None = None) -> Iterator[tuple[Run, Prepared]]:
    """The run with its lease, and what it has staged as a publish that nobody sees yet."""
    with holding(run) as held, prepared(held, sink, *records_of(run), kept) as ready:
        yield held, ready


def publish_ready(run: Run, sink: Sink, ready: Prepared) -> list[str]:
    """Make it visible; the published files, as paths below the sink."""
    receipt = receipt_of(run, sink, ready)
    publish(run, sink, ready, NO_ERRORS, receipt)
    return list(receipt["files"])


def publish_parts(run: Run, sink: Sink, *parts: dict[str, Any], kept: PublishedRows | None = None) -> list[str]:
    """Stages and publishes, holding the lease, beside the rows `kept`."""
    stage(run, *parts, first=kept.rows if kept else 0)
    with ready_to_publish(run, sink, kept) as (held, ready):
        return publish_ready(held, sink, ready)


def read_file(file: Location) -> pa.Table:
    """A published file of any kind, as its own library reads it."""
    with file.open() as opened:
        if file.name.endswith(".parquet"):
            return pq.ParquetFile(opened).read()
        packing = {"gz": "gzip", "zst": "zstd"}.get(file.name.rsplit(".", 1)[-1])
        content = pa.CompressedInputStream(opened, packing).read() if packing else opened.read()
    reader = pyarrow.csv.read_csv if ".csv" in file.name else pyarrow.json.read_json
    return reader(pa.BufferReader(content))


def read_files(sink: Location, files: list[str]) -> pa.Table:
    tables = [read_file(sink / file) for file in files]
    return pa.concat_tables(tables) if tables else pa.table({"x": pa.array([], pa.int64())})


def sink_of(kind: str, place: Path | str) -> Sink:
    """A sink of this kind; what has no directory lies at `place`."""
    if kind == "postgresql":  # a place is a schema of one database
        schema = f"place_{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"
        return SqlSink(url=POSTGRESQL, table=f"{schema}.results")
    if kind == "sql":
        return SqlSink(url=f"sqlite:///{place}/out.db", table="results")
    if kind == "iceberg":
        return IcebergSink(path="-", catalog=f"sqlite:///{place}/catalog.db", table="results.x")
    if kind == "delta":
        return DeltaSink(path="-")
    if kind == "lance":
        return LanceSink(path="-")
    if kind == "images":
        return ImagesSink(path="-", column="x_as_bytes", grace_seconds=0)
    leaf = {"parquet": ParquetSink, "csv": CsvSink, "jsonl": JsonlSink}[kind]
    return leaf(path="-", grace_seconds=0)


def keeping(sink: Sink, count: int = 1) -> Sink:
    """The sink with this number of replaced publications that it keeps, if it is one of files."""
    return sink.model_copy(update={"keep_publications": count}) if isinstance(sink, HiveFiles) else sink


def undo(run: Run, sink: Sink, generation: str) -> dict[str, Any]:
    """Publish the rows of an earlier generation again, holding the lease."""
    with holding(run) as held:
        return undo_held(held, sink, generation)


def undo_held(run: Run, sink: Sink, generation: str) -> dict[str, Any]:
    receipts = {receipt["generation"]: receipt for receipt in publications(run.ledger, run.job)}
    current = read_json(run.ledger / "receipt.json") or {}
    return publish_earlier(run, sink, receipts[generation], current)


def create_schema(sink: Sink) -> None:
    """The schema of a place in PostgreSQL."""
    assert isinstance(sink, SqlSink)
    with engine(sink.url).begin() as connection:
        connection.execute(CreateSchema(sink.table.partition(".")[0]))


def keep_schema(sink: Sink) -> None:
    """Move the schema of a place and its tables away, for `restore_schema`."""
    assert isinstance(sink, SqlSink)
    schema = sink.table.partition(".")[0]
    with engine(sink.url).begin() as connection:
        connection.execute(sa.text(f"ALTER SCHEMA {schema} RENAME TO kept_{schema}"))


def restore_schema(sink: Sink) -> None:
    """Make the schema of a place as it was when `keep_schema` moved it away."""
    assert isinstance(sink, SqlSink)
    schema = sink.table.partition(".")[0]
    with engine(sink.url).begin() as connection:
        connection.execute(DropSchema(schema, cascade=True, if_exists=True))
        connection.execute(CreateSchema(schema))
        for table in sa.inspect(connection).get_table_names(schema=f"kept_{schema}"):
            kept, copy = f"kept_{schema}.{table}", f"{schema}.{table}"
            connection.execute(sa.text(f"CREATE TABLE {copy} (LIKE {kept} INCLUDING ALL)"))
            connection.execute(sa.text(f"INSERT INTO {copy} SELECT * FROM {kept}"))


def columns_of(kind: str, numbers: list[int]) -> dict[str, Any]:
    """Rows with the column x, and what a sink of this kind needs besides."""
    beginning = b"\x89PNG\r\n\x1a\n"  # more of an image is not looked at
    images = {"x_as_bytes": [beginning + bytes([number]) for number in numbers]} if kind == "images" else {}
    return {"x": numbers, **images}


def rows_in_database(run: Run, sink: SqlSink) -> list[dict[str, Any]]:
    """The rows of the run's partition."""
    schema, _, name = sink.table.rpartition(".")
    with engine(sink.url).connect() as connection:
        if not sa.inspect(connection).has_table(name, schema=schema or None):
            return []
        rows = connection.execute(sa.text(f"SELECT * FROM {sink.table}")).mappings().all()
    return [dict(row) for row in rows if _is_own(dict(row), run)]


def rows_in_table(run: Run, sink: Sink) -> pa.Table:
    """The rows of the run's partition, as the library of the table reads them; nothing without a table."""
    if isinstance(sink, IcebergSink):
        try:
            catalog = iceberg.CatalogEntry(sink.catalog, "default", sink.table, run.sink).catalog()
            found = catalog.load_table(sink.table).scan().to_arrow()
        except NoSuchTableError:
            return pa.table({})
    elif isinstance(sink, LanceSink):
        dataset = lance.open_table(run.sink)
        found = dataset.to_table() if dataset else pa.table({})
    else:
        table = open_table(run.sink)
        found = table.to_pyarrow_table() if table else pa.table({})
    return in_partition(found, run)


def in_partition(table: pa.Table, run: Run) -> pa.Table:
    columns = [name for name in run.partition_column.split(",") if name in table.column_names]
    return table.filter(pa.array([_is_own(row, run) for row in table.select(columns).to_pylist()], pa.bool_()))


def _is_own(row: dict[str, Any], run: Run) -> bool:
    values = partition_values(run.partition_column, run.partition)
    for name, value in values.items():
        found = str(row.get(name, value))
        if (found[:10] if isinstance(value, date) else found) != str(value):  # SQLite's days are texts
            return False
    return True


def visible(run: Run, sink: Sink) -> list[int]:
    """The column x as readers find it, sorted: in the table, or in the files that a listing gives."""
    if isinstance(sink, SqlSink):
        return sorted(row["x"] for row in rows_in_database(run, sink))
    if isinstance(sink, DeltaSink | IcebergSink | LanceSink):
        found = rows_in_table(run, sink)
    else:
        names = [name for name in run.target.names() if name[0] not in "_." and not name.endswith(".images")]
        found = read_files(run.target, names)
    return sorted(found["x"].to_pylist()) if "x" in found.column_names else []
