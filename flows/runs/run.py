"""What one run of a partition is: where its state lies, where it publishes, and what decides its results."""

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
    """All but the inputs that decides results, as JSON values.

    The settings that change results, hashes of the files of models and predictors, and the format version. Raises
    `JobError` for a model or predictor that is not there.
    """
    return {
        "settings": job.result_settings(),
        "models": [model.fingerprint() for model in job.inference],
        "steps": [step.fingerprint() for step in job.steps],
        "format_version": FORMAT_VERSION,
    }


def state_of(job: Job) -> Location:
    """`<state>`: where the job's ledgers are."""
    return Location(job.state or f"{(job.sink.place or '').rstrip('/')}/_overnight")


def place_of(job: Job, is_sample: bool) -> Location:
    """Where the files lie that a receipt lists. A sample never touches real data."""
    state = state_of(job)
    if is_sample:
        return state / "samples/published"
    return Location(job.sink.place) if job.sink.place else state / "published"  # nothing lies there but samples


def sink_of(job: Job, run: Run) -> Sink:
    """The job's sink, or where it publishes samples."""
    return job.sink.of_samples() if run.limit_rows else job.sink


def describe_run(
    job: Job,
    partition: str,
    reason: str = "",
    limit_rows: int = 0,
    backfill: str = "",
    scheduled_for: str | None = None,
) -> Run:
    """A new attempt, which belongs to no generation yet. `limit_rows`: 0 for all. `backfill`: the id of one, if any.

    Raises `JobError` for settings that cannot work.
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
