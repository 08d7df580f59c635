"""Plan a retry: only the quarantined rows of a published partition run again, and join its published rows.

A retry is a generation of its own, in which all rows are settled from the start except the quarantined ones. So the
five tasks run it as they would resume a run, and the next retry resumes one that died. A run of the whole partition
never resumes a retry, because the retry's fingerprint covers the published generation and the inputs too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.flows.ledger.staleness import changed_settings
from overnight.flows.runs.attempt import Scope, fresh_receipt
from overnight.flows.runs.run import fingerprint_of, run_option
from overnight.tasks.errors import JobError, RetryRefused
from overnight.tasks.ingest.task import RetriedInputs, look_again, take_over_manifest
from overnight.tasks.preprocess.kinds import PartitionStep
from overnight.tasks.state.published_rows import settled_record, take_over, without_quarantined
from overnight.tasks.state.row_ranges import ranges_only
from overnight.tasks.state.run import Run, published_files, read_json
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.task import is_under_way


@dataclass(frozen=True)
class Retry(Scope):
    """A planned retry of the quarantined rows of a published partition. Its run has a fingerprint of its own."""

    current: str  # the job's fingerprint
    receipt: dict[str, Any]  # of the published generation
    settled: Record  # how the rows of that generation were settled
    inputs: RetriedInputs
    code: tuple[str, ...]  # sentences about code that changed since the publish

    def is_published(self, receipt: dict[str, Any]) -> bool:
        return bool(receipt.get("retried", {}).get("generation") == self.receipt["generation"])

    def begin(self, run: Run) -> dict[str, Any]:
        """Record all rows as settled in the run's new generation, except the quarantined ones."""
        receipt = read_json(run.ledger / "receipt.json") or {}
        if receipt.get("generation") != self.receipt["generation"]:
            raise RetryRefused(f"{run.job}/{run.partition}: another run published it meanwhile. Run the command again.")
        numbers = take_over_manifest(run.manifest, _manifest(run, receipt), self.inputs)
        ranges = without_quarantined(self.settled.ranges)
        units = pa.array(numbers[ranges["unit"].to_numpy()], pa.int64())
        ranges = ranges.set_column(0, "unit", units).filter(pa.array(units.to_numpy() >= 0))
        take_over(run, self.settled, ranges)
        return {
            "retries": receipt["generation"],
            "current": self.current,
            "ingredients": run.ingredients,
            "code": list(self.code),
            "again": list(self.inputs.again),
            "gone": list(self.inputs.gone),
        }


def published_or_scope(job: Job, run: Run, force: bool, retry_quarantined: bool) -> tuple[dict[str, Any] | None, Scope]:
    """Return the receipt if the partition stays as it is, and otherwise None and the rows that run.

    Raise `RetryRefused` if the quarantined rows cannot run alone.
    """
    if not retry_quarantined:
        receipt = None if force or run.limit_rows else fresh_receipt(job, run)
        return receipt, Scope(run)
    if retry := plan_retry(job, run, force):
        return None, retry
    return read_json(run.ledger / "receipt.json"), Scope(run)


def plan_retry(job: Job, run: Run, force: bool = False) -> Retry | None:
    """Return the retry of a partition's quarantined rows, or None if the published partition has none.

    Hub models keep the commits of the published rows. Raise `RetryRefused` if these rows cannot stay as they are.
    """
    if force or run.limit_rows:
        option = "force" if force else "limit_rows"
        raise JobError(f"expected retry_quarantined or {option}, found both: a retry runs the quarantined rows alone.")
    receipt = read_json(run.ledger / "receipt.json")
    if receipt is None or receipt["job"] != run.job:
        raise _refused(run, "it is not published")
    if not receipt["rows_quarantined"]:
        return None
    for step in (*job.preprocess, *job.inference):
        if isinstance(step, PartitionStep):
            raise _refused(run, f"{step.kind} would not compare them with the published rows", "--force")
    commits = receipt.get("commits") or {}
    run = replace(run, commits={name: commits.get(name) or commit for name, commit in run.commits.items()})
    code = _changed_code(job, run, receipt)
    record = settled_record(run, receipt["generation"])
    if record is None:
        raise _refused(run, "the version of Overnight that published it left no record of its rows", "--force")
    if reason := _cannot_stay(job, run, receipt, record):
        raise _refused(run, reason, "--force")
    inputs = look_again(job.source, run.partition, _manifest(run, receipt), record.ranges)
    if inputs.refusal:
        raise _refused(run, inputs.refusal)
    fingerprint = fingerprint_of([run.fingerprint, receipt["generation"], inputs.inputs])
    return Retry(replace(run, fingerprint=fingerprint), run.fingerprint, receipt, record, inputs, code)


def _changed_code(job: Job, run: Run, receipt: dict[str, Any]) -> tuple[str, ...]:
    """Return sentences about changed code. Raise `RetryRefused` if settings, models or other files changed too."""
    changes = changed_settings(receipt, run)
    if not changes:
        return ()
    then, now = receipt["ingredients"], job.ingredients()
    with_old_files = {**now, "models": then["models"], "steps": then["steps"]}
    has_same_settings = fingerprint_of(with_old_files) == receipt["fingerprint"]
    if has_same_settings and all(kind == "python" or name.endswith(".py") for kind, name in _changed_files(then, now)):
        return changes
    raise _refused(run, f"{'; '.join(changes)}. Published rows would have other results too")


def _changed_files(then: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for section, files in (("inference", "models"), ("preprocess", "steps")):
        for leaf, before, after in zip(now["settings"][section], then[files], now[files], strict=True):
            for name in {*before, *after}:
                if before.get(name) != after.get(name):
                    yield leaf["kind"], name


def _cannot_stay(job: Job, run: Run, receipt: dict[str, Any], record: Record) -> str:
    sink, files = job.sink_for(run), published_files(receipt)
    if not sink.keeps_rows:
        return f"sink.kind: {sink.kind} replaces whole partitions and cannot keep rows"
    if job.checks.python and receipt["rows_out"] and not any(file.endswith(".parquet") for file in files):
        return f"checks.python reads all rows, and those in a sink of kind {sink.kind} are not in Parquet files"
    if not len(ranges_only(without_quarantined(record.ranges))):
        return "all of its rows are quarantined"
    if not is_under_way(run) and (missing := sink.lost(run, files, receipt["rows_out"])):
        return f"its place no longer has {missing}"
    return ""


def _manifest(run: Run, receipt: dict[str, Any]) -> Location:
    return replace(run, generation=receipt["generation"]).manifest


def _refused(run: Run, reason: str, option: str = "") -> RetryRefused:
    command = f"overnight run JOB.yaml{run_option(run.partition)} {option}".rstrip()
    return RetryRefused(
        f"the quarantined rows of {run.job}/{run.partition} cannot run alone: {reason}. "
        f"Run the whole partition{' with force' * bool(option)}: `{command}`."
    )
