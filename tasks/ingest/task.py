"""Ingest: takes or reuses the generation's manifest, subtracts the settled rows, and plans the read."""

from functools import partial

import numpy as np
import pyarrow as pa
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from overnight.tasks.artifacts import artifact_key, dispensable, markdown_table
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.ingest.listing.list_files import list_inputs, stream_inputs
from overnight.tasks.ingest.listing.pending_units import units_left, write_pending
from overnight.tasks.ingest.listing.take_manifest import FIRST_UNITS, take_manifest
from overnight.tasks.ingest.listing.wait_for_inputs import wait_for_arrival
from overnight.tasks.ingest.reading.datasource import ManifestDatasource
from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.state import row_ranges
from overnight.tasks.state.manifest import COUNTS, read_manifest, read_schema, read_snapshot, read_warnings
from overnight.tasks.state.manifest import read_units as units_of
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import read_records
from overnight.tasks.state.stream import Stream

__all__ = ["ingest", "list_inputs", "stream_inputs"]


@task(name="ingest", task_run_name="ingest: list the inputs", cache_policy=NO_CACHE, persist_result=False)
def ingest(run: Run, source: Source) -> Stream:
    """Take the manifest, or reuse the generation's own.

    Return the stream of its rows: blocks of columns as `tasks/ingest/sources/<kind>.py` describes them. Raise
    `InputError` if the inputs do not arrive, cannot be listed, or there are none, and `ServiceUnavailable` if the
    error may pass.
    """
    if not run.manifest.exists():
        # a sample uses the files that exist
        if isinstance(source, FileSource) and source.wait_for and not run.limit_rows:
            wait_for_arrival(source, source.wait_for, run.partition, get_run_logger().info)
        take_manifest(run.manifest, source, run.partition, run.limit_rows)
    _describe(run)
    for warning in read_warnings(run.manifest):
        get_run_logger().warning(warning)
    schema, snapshot = read_schema(run.manifest), read_snapshot(run.manifest)
    source = source.at(snapshot) if snapshot else source
    return Stream(
        plan_read=plan_read,
        datasource=partial(ManifestDatasource, source, schema=schema),
        read=partial(read_units, source=source, schema=schema),
        sample=run.sample,
        bytes_stay=not source.rows_are_files,
    )


def plan_read(run: Run) -> None:
    """Write the reading order of the rows that staged parts do not settle, for the run's attempt."""
    counts, _ = read_manifest(run.manifest, COUNTS)
    write_pending(run.order, run.manifest, counts, _settled(run))


def _settled(run: Run) -> pa.Table:
    return row_ranges.merge([record.ranges for record in read_records(run.parts)])


@dispensable()
def _describe(run: Run) -> None:
    units, _ = read_manifest(run.manifest, COUNTS)
    some = units_of(run.manifest, np.union1d(np.arange(len(units))[:FIRST_UNITS], np.arange(len(units))[-1:]))
    known = units["rows"].null_count == 0
    create_markdown_artifact(
        key=artifact_key(run.job, "manifest"),
        description=f"Inputs of {run.job}/{run.partition}",
        markdown=markdown_table(
            {
                "partition": run.partition,
                "files": int(np.sum(units["first_row"].to_numpy() == 0)),
                "units": len(units),
                "rows": int(np.sum(units["rows"].to_numpy())) if known else "counted while reading",
                "bytes": int(np.sum(units["size"].to_numpy())),
                "units left to read": len(units_left(units, _settled(run))[0]),
                "first": some["path"][0].as_py() if len(some) else "",
                "last": some["path"][-1].as_py() if len(some) else "",
            }
        ),
    )
