"""Ingest: takes or reuses the generation's manifest, subtracts what is settled, and plans the read."""

from functools import partial

import numpy as np
import pyarrow as pa
import ray.data
from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from overnight.tasks.artifacts import artifact_key, dispensable, markdown_table
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.ingest.listing.list_files import list_inputs, stream_inputs
from overnight.tasks.ingest.listing.pending_units import write_pending
from overnight.tasks.ingest.listing.take_manifest import FIRST_UNITS, take_manifest
from overnight.tasks.ingest.listing.wait_for_inputs import wait_for_arrival
from overnight.tasks.ingest.reading.datasource import ManifestDatasource
from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.resources.plan import BYTES_STAY, READ, TASK_RETRIES, Plan
from overnight.tasks.state import row_ranges
from overnight.tasks.state.manifest import read_manifest, read_schema, read_snapshot, read_warnings
from overnight.tasks.state.manifest import read_units as units_of
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import read_records

__all__ = ["ingest", "list_inputs", "stream_inputs"]


@task(
    name="ingest",
    task_run_name="ingest: list the inputs",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def ingest(run: Run, source: Source, plan: Plan) -> ray.data.Dataset:
    """The lazy dataset of the partition's pending rows, one block of columns as `tasks/ingest/<kind>.py` gives them.

    Raises `InputError` where the inputs do not arrive, cannot be listed, or there are none, and `StorageFailed` where
    that may pass.
    """
    if not run.manifest.exists():
        if isinstance(source, FileSource) and source.wait_for and not run.limit_rows:  # a sample takes what is there
            wait_for_arrival(source, source.wait_for, run.partition, get_run_logger().info)
        take_manifest(run.manifest, source, run.partition, run.limit_rows)
    units, _ = read_manifest(run.manifest, ["size", "first_row", "rows"])
    left = write_pending(run.order, run.manifest, units, row_ranges.merge([r.ranges for r in read_records(run.parts)]))
    some = units_of(run.manifest, np.union1d(np.arange(len(units))[:FIRST_UNITS], np.arange(len(units))[-1:]))
    _describe(run, units, some, left)
    for warning in read_warnings(run.manifest):
        get_run_logger().warning(warning)
    schema, snapshot = read_schema(run.manifest), read_snapshot(run.manifest)
    source = source.at(snapshot) if snapshot else source
    dataset = ray.data.read_datasource(
        ManifestDatasource(source, run, schema),
        override_num_blocks=1,  # no splitting of blocks behind the read
        num_cpus=plan.task_cpus,
        concurrency=plan.task_concurrency,
        ray_remote_args={"max_retries": TASK_RETRIES},
    )
    dataset.context.set_config(READ, partial(read_units, source=source, run=run, schema=schema))
    dataset.context.set_config(BYTES_STAY, not source.rows_are_files)
    dataset.context.raise_original_map_exception = True  # wrapped, an error loses its cause on its way to the driver
    dataset.context.enable_progress_bars = False
    return dataset


@dispensable()
def _describe(run: Run, units: pa.Table, some: pa.Table, left: int) -> None:
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
                "units left to read": left,
                "first": some["path"][0].as_py() if len(some) else "",
                "last": some["path"][-1].as_py() if len(some) else "",
            }
        ),
    )
