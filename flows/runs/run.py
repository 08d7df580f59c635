"""A new run of a partition, made of a job: where its state is, where it publishes, and what decides its results.

This file imports neither Prefect nor Ray, because `overnight validate` answers in seconds.
"""

import hashlib
import json
from typing import Any

from overnight.flows.job.model import Job
from overnight.tasks.config.masking import masked, masked_in, without_secrets
from overnight.tasks.errors import CheckFailed, JobError
from overnight.tasks.state.run import Run, new_attempt, now, published_files, read_json
from overnight.tasks.storage.location import expand
from overnight.tasks.storage.stores import use
from overnight.tasks.write.kinds import Sink


def describe_run(
    job: Job,
    partition: str,
    reason: str = "",
    limit_rows: int = 0,
    backfill: str = "",
    scheduled_for: str | None = None,
) -> Run:
    """Return a new attempt at a partition, which belongs to no generation yet. `backfill` is the id of its backfill."""
    if limit_rows < 0:
        raise JobError(f"limit_rows: expected a number of rows, or 0 for all, found {limit_rows}.")
    for _, text in job.source.dated_texts():
        expand(text, partition)
    outputs = job.outputs(limit_rows)
    ingredients = job.ingredients()
    return Run(
        job=job.name,
        partition=partition,
        partition_column=job.sink.partition_column,
        state=outputs.state,
        sink=outputs.files,
        generation="",
        attempt=new_attempt(),
        fingerprint=fingerprint_of(ingredients),
        ingredients=masked_in(ingredients),
        commits=job.commits(),
        started_at=now(),
        keep_columns=tuple(job.sink.keep_columns),
        limit_rows=limit_rows or None,
        reason=masked(reason),
        backfill=backfill,
        scheduled_for=scheduled_for,
        row_timeout_seconds=job.row_timeout_seconds,
        stall_timeout_seconds=job.stall_timeout_seconds,
        busy_timeout_seconds=job.busy_timeout_seconds,
        budget=job.budget.limits,
        stores=use(job.storage),
    )


def fingerprint_of(ingredients: Any) -> str:
    """Return a hash of JSON values, such as `Job.ingredients()`, as 16 hexadecimal digits.

    Secrets count as `***`, so a list of words does not find them. Values without secrets keep their fingerprint.
    """
    text = json.dumps(without_secrets(ingredients), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_option(partition: str) -> str:
    """Return the option of `overnight run` that names a partition, with a blank before it; nothing for `all`."""
    return "" if partition == "all" else f" --partition {partition}"


def refuse_other_job(run: Run) -> None:
    receipt = read_json(run.ledger / "receipt.json")
    if receipt and receipt["job"] != run.job:
        raise CheckFailed(
            f"{run.target}: expected results of the job {run.job!r}, found results published by the job "
            f"{receipt['job']!r}. Give each job a sink of its own."
        )


def refuse_foreign_files(run: Run, sink: Sink) -> None:
    """Raise `CheckFailed` if the target holds files that no receipt of this partition lists."""
    files: set[str] = set()
    receipts = run.ledger / "receipts"
    for name in receipts.names():
        files.update(published_files(read_json(receipts / name)))
    if foreign := sink.foreign(run, files):
        raise CheckFailed(
            f"{run.target}: expected only files of Overnight, found {len(foreign)} that Overnight did not publish, for "
            f"example {foreign[0]}. No file was changed. Move them away, or choose another sink.path."
        )
