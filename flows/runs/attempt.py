"""Begin an attempt: decide if the partition needs a run, and which generation the attempt belongs to."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import prefect.runtime
from prefect import get_run_logger

from overnight.flows.job.model import Job
from overnight.flows.runs.crash_recovery import end_dead_run, end_published_run
from overnight.tasks.errors import CheckFailed, OvernightError, explain
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state import lease
from overnight.tasks.state.manifest import digest, read_manifest
from overnight.tasks.state.run import (
    FORMAT_VERSION,
    Run,
    now,
    published_files,
    read_json,
    unfinished_generation,
    write_json,
)
from overnight.tasks.write.kinds import Sink
from overnight.tasks.write.task import Repaired, is_under_way, repair

JUDGED = ("CheckFailed", "TooManyQuarantined", "InputError")  # failures that the inputs can cause


def fresh_receipt(job: Job, run: Run) -> dict[str, Any] | None:
    """Return the receipt if the partition is published and its inputs, settings, models and code have not changed.

    Return None while a publish is under way, or if a forced run began a newer generation. Either may have been
    interrupted, and then the next run completes it.
    """
    receipt = read_json(run.ledger / "receipt.json")
    if (
        receipt is None
        or run.limit_rows
        or is_under_way(run)
        or (receipt["job"], receipt["fingerprint"]) != (run.job, run.fingerprint)
        or unfinished_generation(run.ledger, run.fingerprint)
    ):
        return None
    return receipt if receipt["inputs"] == digest(stream_inputs(job.source, run.partition)) else None


def is_publisher_dead(run: Run, receipt: dict[str, Any]) -> bool:
    """Return True if the process that published the partition died before it released its lease."""
    left = lease.left_by(run.ledger)
    return left is not None and left.token == receipt.get("token") and not left.is_alive


def bury_publisher(run: Run) -> None:
    """End the run whose process died after it had published, and release its lease."""
    with contextlib.suppress(lease.PartitionBusy), lease.held(run.ledger, run.attempt, "", end_published_run):
        pass


@contextlib.contextmanager
def opened(job: Job, run: Run, force: bool) -> Iterator[Run]:
    """Yield the run while it holds its partition, in the unfinished generation of its settings or in a new one.

    First repair a publish that an earlier run left unfinished. If that completed a publish of the same settings, the
    run belongs to its generation, and is `published_already`. Raise `PartitionBusy` if another run holds the partition,
    and `CheckFailed` if the target holds files that Overnight did not write.
    """
    flow_run = prefect.runtime.flow_run.id or ""
    with lease.held(run.ledger, run.attempt, flow_run, end_dead_run) as token:
        run = replace(run, token=token, flow_run=flow_run)
        run.failure_quarantine.remove()
        receipt = read_json(run.ledger / "receipt.json")
        if receipt and receipt["job"] != run.job:
            raise CheckFailed(
                f"{run.target}: expected results of the job {run.job!r}, found results published by the job "
                f"{receipt['job']!r}. "
                "Give each job a sink of its own."
            )
        generation = None
        repaired = _put_right(run, job.sink_for(run))
        if repaired and repaired.receipt and repaired.receipt["fingerprint"] == run.fingerprint:
            generation = repaired.generation
        refuse_foreign_files(run, job.sink_for(run))
        generation = generation or unfinished_generation(run.ledger, run.fingerprint)
        if generation and _is_outdated(job, replace(run, generation=generation)):
            get_run_logger().info("the inputs changed since the last attempt failed on them; listing them again")
            generation = None
        run = replace(run, generation=_new_generation(run) if force or run.limit_rows or not generation else generation)
        try:
            yield run
        except Exception as error:
            _record_failure(run, explain(error, "plan"))
            raise


def _is_outdated(job: Job, run: Run) -> bool:
    """Return True if the run's generation failed because of its inputs, and the inputs have changed since.

    Such a generation would only fail again. A generation that was killed, or lost its storage, resumes with the inputs
    that it listed, even if they have changed.
    """
    failure = read_json(run.ledger / "failure.json")
    if not failure or failure.get("generation") != run.generation or failure["error_type"] not in JUDGED:
        return False
    try:
        _, inputs = read_manifest(run.manifest, ["size"])
    except FileNotFoundError:
        return False
    return inputs != digest(stream_inputs(job.source, run.partition))


def _record_failure(run: Run, error: OvernightError) -> None:
    """Write `failure.json`. Raise `LeaseLost` if another run holds the partition now."""
    try:
        lease.check(run.ledger, run.token)
        failure = describe_failure(run.job, run.partition, error)
        kept = str(run.failure_quarantine) if run.failure_quarantine.exists() else None
        logs = str(run.log) if run.log.exists() else None
        more = {"attempt": run.attempt, "generation": run.generation, "quarantine": kept, "logs": logs}
        write_json(run.ledger / "failure.json", failure | more)
    except lease.LeaseLost:
        raise
    except Exception as unwritten:
        get_run_logger().warning("cannot write failure.json in %s: %s", run.ledger, unwritten)


def _put_right(run: Run, sink: Sink) -> Repaired | None:
    if repaired := repair(run, sink):
        get_run_logger().warning(str(repaired))
        if repaired.receipt and repaired.flow_run != run.flow_run:
            end_published_run(repaired.flow_run)
    return repaired


def _new_generation(run: Run) -> str:
    moment, _, suffix = run.attempt.partition("-")
    generation = f"{moment}-{run.fingerprint[:6]}-{suffix}"
    location = run.ledger / "generations" / generation / "generation.json"
    record = {"fingerprint": run.fingerprint, "format_version": FORMAT_VERSION, "created_at": run.started_at}
    write_json(location, record)
    return generation


def refuse_foreign_files(run: Run, sink: Sink) -> None:
    """Raise `CheckFailed` if the target holds files that no receipt of this partition lists."""
    known: set[str] = set()
    receipts = run.ledger / "receipts"
    for name in receipts.names():
        known.update(published_files(read_json(receipts / name)))
    if foreign := sink.foreign(run, known):
        raise CheckFailed(
            f"{run.target}: expected only files of Overnight, found {len(foreign)} that Overnight did not publish, for "
            f"example {foreign[0]}. No file was changed. Move them away, or choose another sink.path."
        )


def describe_failure(job: str, partition: str, error: OvernightError) -> dict[str, Any]:
    """Return a failure or a cancellation as `--json` prints it, and as `failure.json` records a failure."""
    return {
        "job": job,
        "partition": partition,
        "status": error.status,
        "stage": error.stage,
        "error_type": error.error_type,
        "error_message": str(error),
        "failed_at": now(),
    }
