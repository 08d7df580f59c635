"""Describe one run of a partition: its state folder, its target, and the ingredients of its results."""

import hashlib
import json
from typing import Any

from overnight.flows.job.model import Job
from overnight.tasks.config.masking import masked, masked_in
from overnight.tasks.errors import JobError
from overnight.tasks.state.run import FORMAT_VERSION, Run, new_attempt, now
from overnight.tasks.storage.location import Location, expand
from overnight.tasks.write.kinds import Sink


def ingredients(job: Job) -> dict[str, Any]:
    """Return everything except the inputs that determines results, as JSON values.

    These are the settings that change results, hashes of the files of models and predictors, and the format version.
    Raise `JobError` if a model or predictor does not exist.
    """
    return {
        "settings": job.result_settings(),
        "models": [model.fingerprint() for model in job.inference],
        "steps": [step.fingerprint() for step in job.steps],
        "format_version": FORMAT_VERSION,
    }


def state_of(job: Job) -> Location:
    """Return `<state>`, the folder of the job's ledgers."""
    return Location(job.state or f"{(job.sink.place or '').rstrip('/')}/_overnight")


def place_of(job: Job, is_sample: bool) -> Location:
    """Return the folder of the files that a receipt lists. A sample has a folder apart from real data."""
    state = state_of(job)
    if is_sample:
        return state / "samples/published"
    return Location(job.sink.place) if job.sink.place else state / "published"  # only samples are there


def sink_of(job: Job, run: Run) -> Sink:
    """Return the job's sink, or the sink of its samples."""
    return job.sink.of_samples() if run.limit_rows else job.sink


def describe_run(
    job: Job,
    partition: str,
    reason: str = "",
    limit_rows: int = 0,
    backfill: str = "",
    scheduled_for: str | None = None,
) -> Run:
    """Return a new attempt, which belongs to no generation yet. Raise `JobError` for settings that cannot work.

    Args:
        limit_rows: The number of rows of a sample, or 0 for all rows.
        backfill: The id of the backfill that this run belongs to, or an empty string.
        scheduled_for: The scheduled time as receipts write it, or None.
    """
    if limit_rows < 0:
        raise JobError(f"limit_rows: expected a number of rows, or 0 for all, found {limit_rows}.")
    for _, text in job.source.dated_texts():
        expand(text, partition)
    state = state_of(job)
    decisive = ingredients(job)
    return Run(
        job=job.name,
        partition=partition,
        partition_column=job.sink.partition_column,
        state=state / "samples" if limit_rows else state,
        sink=place_of(job, bool(limit_rows)),
        generation="",
        attempt=new_attempt(),
        fingerprint=hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16],
        ingredients=masked_in(decisive),
        started_at=now(),
        limit_rows=limit_rows or None,
        reason=masked(reason),
        backfill=backfill,
        scheduled_for=scheduled_for,
        row_timeout_seconds=job.row_timeout_seconds,
        stall_timeout_seconds=job.stall_timeout_seconds,
    )
