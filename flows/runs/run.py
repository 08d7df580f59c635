"""A new run of a partition, made of a job: where its state is, where it publishes, and what decides its results."""

import hashlib
import json
from typing import Any

from overnight.flows.job.model import Job
from overnight.tasks.config.masking import masked, masked_in, without_secrets
from overnight.tasks.errors import JobError
from overnight.tasks.state.run import Run, new_attempt, now
from overnight.tasks.storage.location import expand


def describe_run(
    job: Job,
    partition: str,
    reason: str = "",
    limit_rows: int = 0,
    backfill: str = "",
    scheduled_for: str | None = None,
) -> Run:
    """Return a new attempt at a partition, which belongs to no generation yet.

    Raise `JobError` if `limit_rows` is negative, or if a variable or a model that the job names is missing.

    Args:
        reason: The user's reason for the run, for the receipt.
        limit_rows: The number of rows of a sample, or 0 for all rows.
        backfill: The id of the backfill that this run belongs to, or an empty string.
        scheduled_for: The scheduled time in UTC, as ISO 8601, or None if the schedule did not make the run.
    """
    if limit_rows < 0:
        raise JobError(f"limit_rows: expected a number of rows, or 0 for all, found {limit_rows}.")
    for _, text in job.source.dated_texts():
        expand(text, partition)
    state = job.state_location
    decisive = job.ingredients()
    return Run(
        job=job.name,
        partition=partition,
        partition_column=job.sink.partition_column,
        state=state / "samples" if limit_rows else state,
        sink=job.output_location(bool(limit_rows)),
        generation="",
        attempt=new_attempt(),
        fingerprint=fingerprint_of(decisive),
        ingredients=masked_in(decisive),
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
    )


def fingerprint_of(decisive: Any) -> str:
    """Return a hash of JSON values, such as `Job.ingredients()`, as 16 hexadecimal digits.

    Secrets count as `***`, so a list of words does not find them. Values without secrets keep their fingerprint.
    """
    return hashlib.sha256(json.dumps(without_secrets(decisive), sort_keys=True).encode()).hexdigest()[:16]
