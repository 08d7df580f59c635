"""The task ingest: takes or reuses the generation's manifest, subtracts the settled rows, and plans the read."""

from functools import partial

import numpy as np
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from overnight.tasks.engine.stream import Stream
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.ingest.listing.continued_inputs import ContinuedInputs, look_again, take_over_manifest
from overnight.tasks.ingest.listing.list_files import list_inputs, stream_inputs, wait_for_arrival, wait_until
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.ingest.sources.job import JobRows
from overnight.tasks.state.manifest import COUNTS, read_manifest, read_schema, read_snapshot, read_warnings
from overnight.tasks.state.pending_units import settled
from overnight.tasks.state.run import Run

__all__ = ["ContinuedInputs", "ingest", "list_inputs", "look_again", "stream_inputs", "take_over_manifest"]


@task(name="ingest", task_run_name="ingest: list the inputs", cache_policy=NO_CACHE, persist_result=False)
def ingest(run: Run, source: Source) -> State[Stream]:
    """Take the manifest of the run's partition after its inputs have arrived, or reuse its generation's manifest.

    Raise `InputError` if there are no inputs or the listing fails, `ServiceUnavailable` if a later attempt may succeed.
    """
    if not run.manifest.exists():
        if not run.limit_rows:  # a sample uses the inputs that exist
            _wait(source, run.partition)
        take_manifest(run.manifest, source, run.partition, run.limit_rows)
    for warning in read_warnings(run.manifest):
        get_run_logger().warning(warning)
    schema, snapshot = read_schema(run.manifest), read_snapshot(run.manifest)
    source = source.at(snapshot) if snapshot else source
    stream = Stream(Read(source, schema), bytes_stay=not source.rows_are_files)
    return Completed(message=_listed(run), data=stream)


def _wait(source: Source, partition: str) -> None:
    """Wait for the inputs as the source's setting `wait_for` requires."""
    tell = get_run_logger().info
    if isinstance(source, FileSource) and source.wait_for:
        wait_for_arrival(source, source.wait_for, partition, tell)
    elif isinstance(source, JobRows) and source.wait_for:
        wait_until(partial(source.lacking, partition), source.wait_for.timeout_minutes, tell)


def _listed(run: Run) -> str:
    """Return a text on the manifest, such as `202 rows in 4 files, 40 MB`, and on the rows that are done."""
    units, _ = read_manifest(run.manifest, COUNTS)
    files = int(np.sum(units["first_row"].to_numpy() == 0))
    rows = "rows that reading counts"
    if units["rows"].null_count == 0:
        rows = f"{int(np.sum(units['rows'].to_numpy())):,} rows"
    size = int(np.sum(units["size"].to_numpy()))
    ranges = settled(run)
    resumed_rows = int(np.sum(ranges["stop"].to_numpy() - ranges["start"].to_numpy()))
    resume_note = f"; an earlier attempt did {resumed_rows:,}" if resumed_rows else ""
    return f"{rows} in {files:,} file{'s' * (files != 1)}, {size / 1e6:,.1f} MB{resume_note}"
