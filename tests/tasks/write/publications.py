"""Staged rows and whole publishes of them, without the stream that would come before."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks import lease, settled, staging
from tasks.run_directory import Run
from tasks.storage import Location
from tasks.write.delta import DeltaSink
from tasks.write.delta_table import open_table
from tasks.write.merging import Prepared
from tasks.write.publish import prepared, publish
from tasks.write.sink import Sink, as_paths
from tests.tasks.runs import make_run

NO_ERRORS = staging.QUARANTINE.empty_table()


def numbered(place: Path | str, number: int, partition: str = "2026-01-02", **changes: Any) -> Run:
    """The attempt of this number, in a generation of its own."""
    return make_run(place, partition, generation=f"g{number:03d}", attempt=f"t-{number:06d}", **changes)


@contextlib.contextmanager
def holding(run: Run) -> Iterator[Run]:
    """The run with its partition's lease."""
    with lease.held(run.ledger, run.attempt) as token:
        yield replace(run, token=token)


def stage(run: Run, *parts: dict[str, Any]) -> None:
    """Parts with these columns; rows are numbered through."""
    first = 0
    for number, columns in enumerate(parts):
        table = pa.table(columns)
        rows = range(first, first := first + len(table))
        table = table.append_column("row_id", pa.array([f"a#{row}" for row in rows], pa.string()))
        for name, numbers in (("__unit", [0] * len(rows)), ("__row", list(rows))):
            table = table.append_column(name, pa.array(numbers, pa.int64()))
        ranges = [{"unit": 0, "start": rows.start, "stop": rows.stop, "state": 0}] if rows else []
        staging.write_part(
            run.parts,
            f"{run.attempt}-{number:06d}",
            table,
            staging.DETAILS.empty_table(),
            pa.Table.from_pylist(ranges, settled.RANGES),
            {},
            "zstd",
        )


def records_of(run: Run) -> tuple[list[staging.Record], pa.Table]:
    records = staging.read_records(run.parts)
    return records, settled.merge([record.ranges for record in records])


def receipt_of(run: Run, ready: Prepared) -> dict[str, Any]:
    files = as_paths(run, [file.name for file in ready.files])
    return {"job": run.job, "generation": run.generation, "attempt": run.attempt, "files": files}


def publish_parts(run: Run, sink: Sink, *parts: dict[str, Any]) -> list[str]:
    """Stages and publishes, holding the lease; the files, as paths below the sink."""
    stage(run, *parts)
    with holding(run) as held, prepared(held, sink, *records_of(run)) as ready:
        receipt = receipt_of(run, ready)
        publish(held, sink, ready, NO_ERRORS, receipt)
    return list(receipt["files"])


def read_files(sink: Location, files: list[str]) -> pa.Table:
    tables = []
    for file in files:
        with (sink / file).open() as opened:
            tables.append(pq.ParquetFile(opened).read())
    return pa.concat_tables(tables) if tables else pa.table({"x": pa.array([], pa.int64())})


def visible(run: Run, sink: Sink) -> list[int]:
    """The column x as readers find it, sorted: in the table, or in the files that a listing gives."""
    if not isinstance(sink, DeltaSink):
        found = read_files(run.target, [name for name in run.target.names() if name[0] not in "_."])
    elif table := open_table(run.sink):
        found = table.to_pyarrow_table()
        if run.partition_directory:
            found = found.filter(pa.array([str(day) == run.partition for day in found["date"].to_pylist()]))
    else:
        return []
    return sorted(found["x"].to_pylist())
