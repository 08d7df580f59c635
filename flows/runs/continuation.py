"""Plan a run that continues a published partition: rows of unchanged inputs stay, and only the others run.

If only inputs changed, rows of new and changed files run, and rows of changed and deleted files leave. A retry of
quarantined rows is the same, with unchanged inputs. Such a run is a generation of its own, in which the rows that stay
are settled from the start. So the five tasks run it as they would resume a run. A run of the whole partition never
resumes it, because its fingerprint covers the published generation and the inputs too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus
from overnight.flows.ledger.staleness import changed_settings
from overnight.flows.runs.attempt import Scope, fresh_receipt
from overnight.flows.runs.run import describe_run, fingerprint_of, run_option
from overnight.tasks.errors import InputError, JobError, RetryRefused
from overnight.tasks.ingest.task import ContinuedInputs, look_again, stream_inputs, take_over_manifest
from overnight.tasks.preprocess.kinds import PartitionStep
from overnight.tasks.rows import blocks
from overnight.tasks.state.manifest import digest, read_manifest
from overnight.tasks.state.publications import results_like
from overnight.tasks.state.published_rows import published_rows, settled_record, take_over, without_quarantined
from overnight.tasks.state.row_ranges import rows_in_state
from overnight.tasks.state.run import Run, published_files, read_json, unfinished_generation
from overnight.tasks.state.staged_parts import Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.kinds import Sink
from overnight.tasks.write.task import ReplacedFiles, files_to_replace, is_under_way, stage_remaining


@dataclass(frozen=True, kw_only=True)
class Continuation(Scope):
    """A planned run that keeps rows of a published partition. Its run has a fingerprint of its own."""

    current: str  # the job's fingerprint
    receipt: dict[str, Any]  # of the published generation
    settled: Record  # how the rows of that generation were settled
    inputs: ContinuedInputs
    sink: Sink
    replaced: ReplacedFiles = field(default_factory=ReplacedFiles)
    is_retry: bool = False  # of its quarantined rows: other code may run them
    code: tuple[str, ...] = ()  # sentences about code that changed since the publish

    @property
    def plan(self) -> dict[str, Any]:
        ranges, _ = self._staying()
        new_rows = pc.sum(self.inputs.units["rows"], skip_nulls=False, min_count=0).as_py()
        if new_rows is not None:
            new_rows += self._quarantined_again()
        return {
            "rows_reused": _settled_rows(ranges),
            "rows_to_run": new_rows,  # None: only reading shows it
            **{f"files_{change}": len(paths) for change, paths in self.inputs.changes.items()},
            "files_replaced": len(self.replaced.files),
            "why": [str(self.inputs)],
        }

    def __str__(self) -> str:
        plan = self.plan
        rows = "the rows of new and changed files run"
        if plan["rows_to_run"] is not None:
            rows = f"{plan['rows_to_run']:,} rows run"
        sentence = f"{rows}, {plan['rows_reused']:,} rows stay as they are published"
        if files := plan["files_replaced"]:
            sentence += f", {files:,} published files are replaced"
        return sentence

    def is_published(self, receipt: dict[str, Any]) -> bool:
        return bool(receipt.get("continued", {}).get("generation") == self.receipt["generation"])

    def begin(self, run: Run) -> dict[str, Any]:
        """Record the rows that stay as settled in the run's new generation, and stage those of replaced files."""
        receipt = read_json(run.ledger / "receipt.json") or {}
        if receipt.get("generation") != self.receipt["generation"]:
            raise RetryRefused(f"{run.job}/{run.partition}: another run published it meanwhile. Run the command again.")
        numbers = take_over_manifest(run.manifest, _manifest(run, receipt), self.inputs)
        ranges, units = self._staying()
        ranges = ranges.set_column(0, "unit", pa.array(numbers[units], pa.int64()))
        take_over(run, self.settled, ranges)
        stage_remaining(run, self.sink, receipt, self.settled, self.replaced, self.inputs.leaving)
        return {
            "continues": receipt["generation"],
            "current": self.current,
            "ingredients": run.ingredients,
            "code": list(self.code),
            "again": list(self.inputs.again),
            "gone": list(self.inputs.changes.get("gone", ())),
            "why": [str(self.inputs)],
            "replaced": list(self.replaced.files),
            "is_retry": self.is_retry,
        }

    def _staying(self) -> tuple[pa.Table, np.ndarray]:
        """Return the settled ranges of rows that stay, and the number of each range's unit in the earlier manifest."""
        ranges = without_quarantined(self.settled.ranges)
        ranges = ranges.filter(pa.array(~self._leaves()[ranges["unit"].to_numpy()]))
        return ranges, ranges["unit"].to_numpy()

    def _leaves(self) -> np.ndarray:
        """Return a bool for each unit of the earlier manifest: True if its rows leave."""
        paths = read_manifest(_manifest(self.run, self.receipt), ["path"])[0]["path"]
        return np.asarray(pc.is_in(paths, pa.array(self.inputs.leaving, pa.string())).to_numpy())

    def _quarantined_again(self) -> int:
        units = self.settled.ranges["unit"].to_numpy()
        staying = self.settled.ranges.filter(pa.array(~self._leaves()[units]))
        return rows_in_state(staying, blocks.QUARANTINED)


def published_or_scope(job: Job, run: Run, force: bool, retry_quarantined: bool) -> tuple[dict[str, Any] | None, Scope]:
    """Return the receipt if the partition stays as it is, and otherwise None and the rows that run.

    Raise `RetryRefused` if the quarantined rows cannot run alone.
    """
    if retry_quarantined:
        if retry := plan_retry(job, run, force):
            return None, retry
        return read_json(run.ledger / "receipt.json"), Scope(run)
    if force or run.limit_rows:
        return None, Scope(run)
    receipt = fresh_receipt(job, run)
    return receipt, Scope(run) if receipt else plan_late(job, run)


def plan_late(job: Job, run: Run) -> Scope:
    """Return the rows to run of a partition that is not fresh: not all of them if only inputs changed."""
    receipt = read_json(run.ledger / "receipt.json")
    if receipt is None or receipt["job"] != run.job or is_under_way(run):
        return Scope(run)
    if changed_settings(receipt, run):
        return Scope(run)
    if unfinished_generation(run.ledger, run.fingerprint):
        return Scope(run)  # an abandoned run of all rows, which this one completes
    if job.source.late == "again":
        return Scope(run, "source.late is again")
    scope = _continued(job, _with_commits(run, receipt), receipt, is_retry=False)
    return Scope(run, scope) if isinstance(scope, str) else scope


def with_plans(job: Job, entries: Sequence[PartitionStatus]) -> list[PartitionStatus]:
    """Return the entries; stale ones with the plan of their next run, which lists their inputs."""
    run, result = describe_run(job, "all"), []
    for entry in entries:
        if entry.status != "stale":
            result.append(entry)
            continue
        try:
            scope = plan_late(job, replace(run, partition=entry.partition))
        except InputError:  # a reason of `entry` names it already
            scope = Scope(run)
        plan = {"rows_reused": 0, "rows_to_run": None, "why": list(entry.why), **scope.plan}
        result.append(replace(entry, plan=plan, why=(*plan["why"], str(scope))))
    return result


def plan_retry(job: Job, run: Run, force: bool = False) -> Continuation | None:
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
    run = _with_commits(run, receipt)
    scope = _continued(job, run, receipt, is_retry=True)
    if isinstance(scope, str):
        is_stale = receipt["inputs"] != digest(stream_inputs(job.source, run.partition))
        raise _refused(run, scope, "" if is_stale else "--force")
    return replace(scope, code=_changed_code(job, run, receipt))


def _continued(job: Job, run: Run, receipt: dict[str, Any], is_retry: bool) -> Continuation | str:
    """Return the run that keeps the published rows of unchanged inputs, or why they cannot stay."""
    for step in (*job.preprocess, *job.inference):
        if isinstance(step, PartitionStep):
            return f"{step.kind} would not compare them with the published rows"
    record = settled_record(run, receipt["generation"])
    if record is None or not _manifest(run, receipt).exists():
        return "the version of Overnight that published it left no record of its rows"
    sink = job.sink_for(run)
    if reason := _cannot_stay(job, sink, run, receipt):
        return reason
    inputs = look_again(job.source, run.partition, _manifest(run, receipt), record.ranges, is_retry)
    if inputs.refusal:
        return inputs.refusal
    fingerprint = fingerprint_of([run.fingerprint, receipt["generation"], inputs.inputs])
    scope = Continuation(
        replace(run, fingerprint=fingerprint),
        current=run.fingerprint,
        receipt=receipt,
        settled=record,
        inputs=inputs,
        sink=sink,
        is_retry=is_retry,
    )
    if not _settled_rows(scope._staying()[0]):
        return "all of its rows are quarantined" if is_retry else "no row of it stays"
    rows = published_rows(run, receipt["generation"], published_files(receipt))
    files = files_to_replace(run, sink, receipt, rows, record, inputs.leaving)
    return files.refusal or replace(scope, replaced=files)


def _cannot_stay(job: Job, sink: Sink, run: Run, receipt: dict[str, Any]) -> str:
    files = published_files(receipt)
    if not sink.keeps_rows:
        return f"sink.kind: {sink.kind} replaces whole partitions and cannot keep rows"
    if job.checks.python and receipt["rows_out"] and not any(file.endswith(".parquet") for file in files):
        return f"checks.python reads all rows, and those in a sink of kind {sink.kind} are not in Parquet files"
    failure = read_json(run.ledger / "failure.json") or {}
    if failure.get("error_type") == "OtherColumns":
        return "the latest attempt found other columns in the new rows than in the published ones"
    if not is_under_way(run) and (missing := sink.lost(run, files, receipt["rows_out"])):
        return f"its place no longer has {missing}"
    return ""


def _settled_rows(ranges: pa.Table) -> int:
    return rows_in_state(ranges, blocks.LIVE) + rows_in_state(ranges, blocks.FILTERED)


def _with_commits(run: Run, receipt: dict[str, Any]) -> Run:
    commits = receipt.get("commits") or {}
    return replace(run, commits={name: commits.get(name) or commit for name, commit in run.commits.items()})


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
    option = "--force" if results_like(receipt, run) else ""  # the rows of this job were undone
    raise _refused(run, f"{'; '.join(changes)}. Published rows would have other results too", option)


def _changed_files(then: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for section, files in (("inference", "models"), ("preprocess", "steps")):
        for leaf, before, after in zip(now["settings"][section], then[files], now[files], strict=True):
            for name in {*before, *after}:
                if before.get(name) != after.get(name):
                    yield leaf["kind"], name


def _manifest(run: Run, receipt: dict[str, Any]) -> Location:
    return replace(run, generation=receipt["generation"]).manifest


def _refused(run: Run, reason: str, option: str = "") -> RetryRefused:
    command = f"overnight run JOB.yaml{run_option(run.partition)} {option}".rstrip()
    return RetryRefused(
        f"the quarantined rows of {run.job}/{run.partition} cannot run alone: {reason}. "
        f"Run the whole partition{' with force' * bool(option)}: `{command}`."
    )
