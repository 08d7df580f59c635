"""The beginning of an attempt: is there anything to do, and which generation does it belong to?"""

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

JUDGED = ("CheckFailed", "TooManyQuarantined", "InputError")  # failures that tell of the inputs


def fresh_receipt(job: Job, run: Run) -> dict[str, Any] | None:
    """The receipt if the partition is published and neither its inputs nor what decides results changed since.

    Not while its publish is under way, nor where a forced run began a newer generation: either may have been cut off,
    and is the next run's to complete.
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
    """Return whether the process that published the partition died before it gave its lease back."""
    left = lease.left_by(run.ledger)
    return left is not None and left.token == receipt.get("token") and not left.is_alive


def bury_publisher(run: Run) -> None:
    """Ends the run whose process died when it had published, and gives its lease back."""
    with contextlib.suppress(lease.PartitionBusy), lease.held(run.ledger, run.attempt, "", end_published_run):
        pass


@contextlib.contextmanager
def opened(job: Job, run: Run, force: bool) -> Iterator[Run]:
    """The run while it holds its partition, in the unfinished generation of its settings or in a new one.

    A publish that an earlier run left half-done is put right first; where that completed one of the same settings, the
    run belongs to its generation, and is `published_already`. Raises `PartitionBusy` while another run is at work and
    `CheckFailed` for a target that holds the files of somebody else.
    """
    flow_run = prefect.runtime.flow_run.id or ""
    with lease.held(run.ledger, run.attempt, flow_run, end_dead_run) as token:
        run = replace(run, token=token, flow_run=flow_run)
        run.failure_quarantine.remove()
        receipt = read_json(run.ledger / "receipt.json")
        if receipt and receipt["job"] != run.job:
            raise CheckFailed(
                f"{run.target}: published by the job {receipt['job']!r}, not by {run.job!r}. "
                "Give each job a sink of its own."
            )
        generation = None
        repaired = _put_right(run, job.sink_for(run))
        if repaired and repaired.receipt and repaired.receipt["fingerprint"] == run.fingerprint:
            generation = repaired.generation
        refuse_foreign_files(run, job.sink_for(run))
        generation = generation or unfinished_generation(run.ledger, run.fingerprint)
        if generation and _is_outdated(job, replace(run, generation=generation)):
            get_run_logger().info("the inputs changed since they were found wanting: they are listed anew")
            generation = None
        run = replace(run, generation=_new_generation(run) if force or run.limit_rows or not generation else generation)
        try:
            yield run
        except Exception as error:
            _record_failure(run, explain(error, "plan"))
            raise


def _is_outdated(job: Job, run: Run) -> bool:
    """Whether the run's generation failed because of its inputs, and these are others by now.

    Were it resumed, it could only fail again. One that was killed, or lost its storage, is resumed with the inputs that
    it listed, whatever came since.
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
    """Leaves `failure.json`. Raises `LeaseLost` where the partition's record is another run's to write by now."""
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
        get_run_logger().warning("the failure could not be recorded in %s: %s", run.ledger, unwritten)


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
    """Raises `CheckFailed` if the target holds files that no receipt of this partition lists."""
    known: set[str] = set()
    receipts = run.ledger / "receipts"
    for name in receipts.names():
        known.update(published_files(read_json(receipts / name)))
    if foreign := sink.foreign(run, known):
        raise CheckFailed(
            f"{run.target} holds {len(foreign)} files that Overnight did not publish, for example {foreign[0]}. "
            "Nothing was changed: move them away, or choose another sink.path."
        )


def describe_failure(job: str, partition: str, error: OvernightError) -> dict[str, Any]:
    """A failure or a cancellation as `failure.json` (only failures) and `--json` say it."""
    return {
        "job": job,
        "partition": partition,
        "status": error.status,
        "stage": error.stage,
        "error_type": error.error_type,
        "error_message": str(error),
        "failed_at": now(),
    }
