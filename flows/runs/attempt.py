"""Begin an attempt: decide if the partition needs a run, and which generation the attempt belongs to."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import prefect.runtime
from prefect import get_run_logger

from overnight.flows.job.model import Job
from overnight.flows.ledger.upstreams import changes_upstream, generations_followed
from overnight.flows.notices.run_notice import Notice
from overnight.flows.runs import flow_run
from overnight.flows.runs.cancellation import INTERRUPTIONS, RunCancelled
from overnight.flows.runs.retries import end_dead_run, end_published_run
from overnight.flows.runs.run import refuse_foreign_files, refuse_other_job
from overnight.tasks.artifacts import dispensable
from overnight.tasks.errors import OvernightError, explain
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state import lease
from overnight.tasks.state.manifest import digest, read_manifest
from overnight.tasks.state.publications import results_like
from overnight.tasks.state.run import (
    FORMAT_VERSION,
    Run,
    changed_commits,
    now,
    read_json,
    timeline_of,
    unfinished_generation,
    write_json,
)
from overnight.tasks.write.task import is_under_way, repair

JUDGED = ("CheckFailed", "TooManyQuarantined", "InputError")  # failures that the inputs can cause


@dataclass(frozen=True)
class Scope:
    """The rows that an attempt runs: by default, all rows of its partition.

    `all_rows` is the reason if only inputs changed since the publish, and all rows run nevertheless.
    """

    run: Run
    all_rows: str = ""

    @property
    def plan(self) -> dict[str, Any]:
        """Return which published rows stay and which run, as JSON values; empty if all run for a known reason."""
        if not self.all_rows:
            return {}
        return {"rows_reused": 0, "rows_to_run": None, "why": [f"only inputs changed, but {self.all_rows}"]}

    @property
    def announcement(self) -> str:
        """Return the plan as a sentence, with its reason; an empty text without a plan."""
        return f"{'; '.join(self.plan['why'])}: {self}" if self.plan else ""

    def __str__(self) -> str:
        return "all rows run"

    def is_published(self, receipt: dict[str, Any]) -> bool:
        """Return True if the receipt is that of a publish of these rows."""
        return bool(results_like(receipt, replace(self.run, commits={})))

    def begin(self, run: Run) -> dict[str, Any]:
        """Prepare the new generation of `run`, and return the keys that its record has in addition."""
        return {"all_rows": self.all_rows} if self.all_rows else {}


def fresh_receipt(job: Job, run: Run) -> dict[str, Any] | None:
    """Return the receipt if the partition is published and its inputs, settings, models and code have not changed.

    Return None for a publish or a forced run that was interrupted: the next run completes it.
    """
    receipt = read_json(run.ledger / "receipt.json")
    if receipt is None or is_under_way(run) or receipt["job"] != run.job:
        return None
    results = results_like(receipt, run)
    if not results or unfinished_generation(run.ledger, run.fingerprint):
        return None
    if changes_upstream(job, run.partition, receipt):
        return None
    inputs = digest(stream_inputs(job.source, run.partition))
    return receipt if inputs in [result["inputs"] for result in results] else None


def is_publisher_dead(run: Run, receipt: dict[str, Any]) -> bool:
    """Return True if the process that published the receipt died before it released its lease."""
    holder = lease.left_by(run.ledger)
    return holder is not None and holder.token == receipt.get("token") and not holder.is_alive


def bury_publisher(run: Run) -> None:
    with contextlib.suppress(lease.PartitionBusy), lease.held(run.ledger, run.attempt, "", end_published_run):
        pass


@contextlib.contextmanager
def opened(job: Job, scope: Scope, force: bool, notice: Notice | None = None) -> Iterator[Run]:
    """Hold the partition of `scope` while the body runs, and yield its run in its generation; `force` begins a new one.

    The notice gets the record of a run that fails, or is cancelled.
    """
    run = scope.run
    notice = notice or Notice(job, run.partition)
    flow_run_id = prefect.runtime.flow_run.id or ""
    job.state_location.make_private()
    with lease.held(run.ledger, run.attempt, flow_run_id, end_dead_run) as token:
        run = replace(run, token=token, flow_run=flow_run_id)
        run.failure_quarantine.remove()
        refuse_other_job(run)
        generation = _repaired_generation(job, run, scope)
        refuse_foreign_files(run, job.sink_for(run))
        generation = generation or unfinished_generation(run.ledger, run.fingerprint)
        if generation and _limit_of(run, generation) != run.limit_rows:
            generation = None  # a sample of another size
        if generation and _is_outdated(job, replace(run, generation=generation)):
            get_run_logger().info("the inputs changed since the last attempt failed on them; listing them again")
            generation = None
        if force or not generation:
            run = replace(run, after=generations_followed(job, run.partition))
            run = replace(run, generation=_new_generation(run, scope))
        else:
            run = _resumed(run, generation)
        try:
            notice.begin(run)
            yield run
        except Exception as error:
            notice.end(run, _record_failure(run, explain(error, flow_run.stage())))
            raise
        except INTERRUPTIONS:
            notice.end(run, _described(run, RunCancelled(stage=flow_run.stage())))
            raise


def _limit_of(run: Run, generation: str) -> int | None:
    record = read_json(replace(run, generation=generation).home / "generation.json") or {}
    return record.get("limit_rows")


def _repaired_generation(job: Job, run: Run, scope: Scope) -> str | None:
    """Complete or roll back an interrupted publish. Return its generation if it is the publish of this run."""
    publish = repair(run, job.sink_for(run))
    if not publish:
        return None
    get_run_logger().warning(str(publish))
    if publish.receipt and publish.flow_run != run.flow_run:
        end_published_run(publish.flow_run)
    # an undo that was taken back leaves a partition that needs no run
    receipt = publish.receipt or fresh_receipt(job, run)
    return str(receipt["generation"]) if receipt and scope.is_published(receipt) else None


def _is_outdated(job: Job, run: Run) -> bool:
    """Return True if the run's generation failed because of its inputs, and the inputs have changed since.

    It would only fail again. A generation that was killed, or lost its storage, resumes with the inputs that it listed.
    """
    failure = read_json(run.ledger / "failure.json")
    if not failure or failure.get("generation") != run.generation or failure["error_type"] not in JUDGED:
        return False
    try:
        _, inputs = read_manifest(run.manifest, ["size"])
    except FileNotFoundError:
        return False
    return inputs != digest(stream_inputs(job.source, run.partition))


def _record_failure(run: Run, error: OvernightError) -> dict[str, Any]:
    """Write `failure.json`, and return its content. Raise `LeaseLost` if another run holds the partition now."""
    failure = _described(run, error)
    try:
        lease.check(run.ledger, run.token)
        files = {"quarantine": run.failure_quarantine, "logs": run.log}
        for name, file in files.items():
            failure[name] = str(file) if file.exists() else None
        with dispensable("failure.json has no timeline"):
            failure |= timeline_of(run)
        write_json(run.ledger / "failure.json", failure)
    except lease.LeaseLost:
        raise
    except Exception as problem:
        get_run_logger().warning("cannot write failure.json in %s: %s", run.ledger, problem)
    return failure


def _described(run: Run, error: OvernightError) -> dict[str, Any]:
    identity = {"attempt": run.attempt, "generation": run.generation}
    return describe_failure(run.job, run.partition, error) | identity


def _resumed(run: Run, generation: str) -> Run:
    """Return the run in an earlier generation, with the commits of hub models with which that generation began.

    A commit that was unknown then stays unknown, because the staged parts may come from another commit.
    """
    run = replace(run, generation=generation)
    record = read_json(run.home / "generation.json") or {}
    for name in changed_commits(record, run):
        get_run_logger().info("%s has a new commit on the hub; this run resumes with the one it began with", name)
    commits = record.get("commits", {})
    return replace(run, commits={name: commits.get(name) for name in run.commits}, after=record.get("after", {}))


def _new_generation(run: Run, scope: Scope) -> str:
    """Begin a generation and return its name.

    Its record is written last, because no run resumes a generation without a record.
    """
    moment, _, suffix = run.attempt.partition("-")
    generation = f"{moment}-{run.fingerprint[:6]}-{suffix}"
    record: dict[str, Any] = {
        "fingerprint": run.fingerprint,
        "format_version": FORMAT_VERSION,
        "created_at": run.started_at,
    }
    if run.commits:
        record["commits"] = dict(run.commits)
    if run.after:
        record["after"] = dict(run.after)
    if run.limit_rows:
        record["limit_rows"] = run.limit_rows
    record |= scope.begin(replace(run, generation=generation))
    write_json(run.ledger / "generations" / generation / "generation.json", record)
    return generation


def describe_failure(job: str, partition: str, error: OvernightError) -> dict[str, Any]:
    """Return the error that ended a run as JSON values, for `--json` and for `failure.json`."""
    return {
        "job": job,
        "partition": partition,
        "status": error.status,
        "stage": error.stage,
        "error_type": error.error_type,
        "error_message": str(error),
        "failed_at": now(),
    }
