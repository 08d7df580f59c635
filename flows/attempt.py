"""The beginning of an attempt: whether there is anything to do, and which generation it belongs to."""

import hashlib
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from flows.job import Job
from tasks.errors import CheckFailed, JobError
from tasks.ingest.task import list_inputs
from tasks.manifest import digest
from tasks.run_directory import (
    FORMAT_VERSION,
    Run,
    now,
    published_files,
    read_json,
    unfinished_generation,
    write_json,
)
from tasks.storage import Location, expand


def fingerprint(job: Job) -> tuple[str, dict[str, Any]]:
    """A hash over all but the inputs that decides results, and what went into it.

    The settings that change results, the files of models and predictors, and the format version. Raises `JobError`
    for a model or predictor that is not there.
    """
    parts = {
        "settings": job.result_settings(),
        "models": [model.fingerprint() for model in job.inference],
        "steps": [step.fingerprint() for step in job.steps],
        "format_version": FORMAT_VERSION,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16], parts


def sample_location(state: Location) -> Location:
    """Where runs with a row limit keep everything, so that they never touch real data."""
    return state / "samples"


def begin(job: Job, partition: str, force: bool, reason: str, limit_rows: int | None) -> tuple[Run, dict | None]:
    """The run, and the receipt if there is nothing to do because the partition is published and not stale.

    Raises `JobError` for settings that cannot work and `CheckFailed` for a target that holds someone else's files.
    """
    expand(job.source.path, partition)
    state = Location(job.state or f"{job.sink.path.rstrip('/')}/_overnight")
    sink = Location(job.sink.path)
    if limit_rows is not None:
        state = sample_location(state)
        sink = state / "published"
    key, _ = fingerprint(job)
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    suffix = uuid.uuid4().hex[:6]
    run = Run(
        job=job.name,
        partition=partition,
        partition_column=job.sink.partition_column,
        state=state,
        sink=sink,
        generation="",
        attempt=f"{moment}-{suffix}",
        fingerprint=key,
        started_at=now(),
        limit_rows=limit_rows,
        reason=reason,
    )
    receipt = read_json(run.ledger / "receipt.json")
    if receipt and receipt["job"] != job.name:
        raise CheckFailed(
            f"{run.target}: published by the job {receipt['job']!r}, not by {job.name!r}. "
            "Give each job a sink of its own."
        )
    refuse_foreign_files(run, receipt)
    if receipt and receipt["fingerprint"] == key and not force and limit_rows is None:
        inputs_now = digest(list_inputs(job.source, partition))
        if receipt["inputs"] == inputs_now:
            return run, receipt
    generation = None if force or limit_rows is not None else unfinished_generation(run.ledger, key)
    if generation is None:
        generation = f"{moment}-{key[:6]}-{suffix}"
        location = run.ledger / "generations" / generation / "generation.json"
        write_json(location, {"fingerprint": key, "format_version": FORMAT_VERSION, "created_at": run.started_at})
    return replace(run, generation=generation), None


def refuse_foreign_files(run: Run, receipt: dict[str, Any] | None) -> None:
    """Raises `CheckFailed` if the target holds files that no receipt of this partition lists."""
    known = {path.rsplit("/", 1)[-1] for path in published_files(receipt)}
    receipts = run.ledger / "receipts"
    for name in receipts.names():
        known.update(path.rsplit("/", 1)[-1] for path in published_files(read_json(receipts / name)))
    foreign = [name for name in run.target.names() if name not in known and name[0] not in "_."]
    if foreign:
        raise CheckFailed(
            f"{run.target} holds {len(foreign)} files that Overnight did not publish, for example {foreign[0]}. "
            "Nothing was changed: move them away, or choose another sink.path."
        )


def refuse_limit(limit_rows: int) -> None:
    """Raises `JobError` for a row limit below 0, which stands for none."""
    if limit_rows < 0:
        raise JobError(f"limit_rows: expected a number of rows, or 0 for all, found {limit_rows}.")
