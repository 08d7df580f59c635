"""Ingest: takes or reuses the generation's manifest, subtracts what is settled, and plans the read."""

from typing import Annotated

import numpy as np
import pyarrow as pa
import ray.data
from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff
from pydantic import Field

from tasks import reading_order, rows, settled
from tasks.artifacts import artifact_key, dispensable, markdown_table
from tasks.errors import InputError, OvernightError
from tasks.ingest.csv import Csv
from tasks.ingest.datasource import ManifestDatasource
from tasks.ingest.images import Images
from tasks.ingest.jsonl import Jsonl
from tasks.ingest.limit import limited
from tasks.ingest.listing import list_inputs
from tasks.ingest.parquet import Parquet
from tasks.manifest import digest, read_manifest, write_manifest
from tasks.resources import Plan
from tasks.run_directory import Run
from tasks.staging import read_records

__all__ = ["Source", "ingest", "list_inputs"]

Source = Annotated[Images | Parquet | Csv | Jsonl, Field(discriminator="kind")]

RETRIES = {"max_retries": 3}


def is_passing(_task: object, _run: object, state: object) -> bool:
    """Whether a failure may pass by itself: storage that failed, rather than a job that is wrong."""
    error = state.result(raise_on_failure=False)  # type: ignore[attr-defined]
    return not isinstance(error, OvernightError)


@task(
    name="ingest",
    task_run_name="ingest: list the inputs",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=2,
    retry_delay_seconds=exponential_backoff(2),
    retry_jitter_factor=0.5,
    retry_condition_fn=is_passing,
)
def ingest(run: Run, source: Source, plan: Plan) -> ray.data.Dataset:
    """The lazy dataset of the partition's pending rows, one block of columns as `tasks/ingest/<kind>.py` gives them.

    Raises `InputError` where the inputs cannot be listed, or there are none.
    """
    try:
        units, _ = read_manifest(run.manifest)
    except FileNotFoundError:
        files = list_inputs(source, run.partition)
        units = source.units(files)
        if run.limit_rows is not None:
            units = limited(source, units, run.limit_rows)
        if not len(units) and not source.allow_empty:
            raise InputError(
                f"source.path: {len(files)} files at {source.location(run.partition)}, but no rows."
            ) from None
        write_manifest(run.manifest, units, digest(files))
    pending = _pending(units, settled.merge([record.ranges for record in read_records(run.parts)]))
    reading_order.write_order(run.order, pending, reading_order.pack(pending["size"].to_numpy()))
    _describe(run, units, pending)
    dataset = ray.data.read_datasource(
        ManifestDatasource(source, run, source.common_schema(units)),
        override_num_blocks=1,  # no splitting of blocks behind the read
        num_cpus=plan.task_cpus,
        concurrency=plan.task_concurrency,
        ray_remote_args=RETRIES,
    )
    dataset.context.raise_original_map_exception = True  # wrapped, an error loses its cause on its way to the driver
    dataset.context.enable_progress_bars = False
    return dataset


def _pending(units: pa.Table, done: pa.Table) -> pa.Table:
    """The units with rows that no staged part settles (schema `PENDING`), in manifest order."""
    expected = settled.rows_of_units(units, done)
    starts, stops = done["start"].to_numpy(), done["stop"].to_numpy()
    ranged = done["state"].to_numpy() != rows.END
    numbers = done["unit"].to_numpy()[ranged]
    lengths = (stops - starts)[ranged]
    settled_rows = np.bincount(numbers, weights=lengths, minlength=len(units)).astype(np.int64)
    ranges: dict[int, list[int]] = {}
    for unit, start, stop in zip(numbers.tolist(), starts[ranged].tolist(), stops[ranged].tolist(), strict=True):
        if settled_rows[unit] != expected[unit]:
            ranges.setdefault(unit, []).extend((start, stop))
    left = np.flatnonzero((expected < 0) | (settled_rows < expected))
    skipped = pa.array([ranges.get(unit) for unit in left.tolist()], pa.list_(pa.int64()))
    return units.take(pa.array(left)).append_column("settled", skipped).cast(reading_order.PENDING)


@dispensable()
def _describe(run: Run, units: pa.Table, pending: pa.Table) -> None:
    known = units["rows"].null_count == 0
    create_markdown_artifact(
        key=artifact_key(run.job, "manifest"),
        description=f"Inputs of {run.job}/{run.partition}",
        markdown=markdown_table(
            {
                "partition": run.partition,
                "files": len(units["path"].unique()),
                "units": len(units),
                "rows": int(np.sum(units["rows"].to_numpy())) if known else "counted while reading",
                "bytes": int(np.sum(units["size"].to_numpy())),
                "units left to read": len(pending),
                "first": units["path"][0].as_py() if len(units) else "",
                "last": units["path"][-1].as_py() if len(units) else "",
            }
        ),
    )
