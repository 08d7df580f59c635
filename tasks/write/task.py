"""The door of this room: stage the rows of the stream that `infer` runs, then verify and publish the staged parts."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import prefect.runtime
import pyarrow as pa
import pyarrow.compute as pc
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from overnight.tasks.duplicates import decision
from overnight.tasks.duplicates.rule import Rule
from overnight.tasks.engine.progress import Progress
from overnight.tasks.engine.stream import OperatorNames, Sampled, Stager, Streamed
from overnight.tasks.errors import (
    BudgetReached,
    CheckFailed,
    ContractError,
    OvernightError,
    TooManyQuarantined,
    detached,
    explain,
    find_cause,
)
from overnight.tasks.resources.plan import Plan
from overnight.tasks.state import lease, read_plan, row_ranges, staged_parts
from overnight.tasks.state.manifest import COUNTS, read_manifest, read_passed_over, read_schema, read_warnings
from overnight.tasks.state.row_ranges import Totals
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.spending import minutes_reached
from overnight.tasks.workers.supervisor import StreamRuns, Supervisor
from overnight.tasks.write.checks.agreement import compare_with_published
from overnight.tasks.write.checks.column_statistics import summary
from overnight.tasks.write.checks.quarantine import keep_quarantine, losing_stage, quarantine_limit, reasons_of
from overnight.tasks.write.checks.run_checks import verdict
from overnight.tasks.write.checks.settings import Checks
from overnight.tasks.write.checks.unreadable_files import unreadable
from overnight.tasks.write.checks.user_check import probe
from overnight.tasks.write.merge.drop_duplicates import drop_duplicates, require_keys
from overnight.tasks.write.merge.known_types import statistics_of_left_out, warnings_of_left_out, with_known_types
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.merge.output_schema import publishable
from overnight.tasks.write.publish.continued import (
    Continued,
    columns_not_published,
    continued_receipt,
    leave_for_next,
    published_places,
    read_continued,
    refuse_other_columns,
)
from overnight.tasks.write.publish.publish import Repaired, audit, is_under_way, prepared, publish, repair
from overnight.tasks.write.publish.receipt import make_receipt, rows_remembered
from overnight.tasks.write.publish.remaining_rows import ReplacedFiles, files_to_replace, stage_remaining
from overnight.tasks.write.publish.reused import reused_answers
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.stream.performance import Capacity, bottleneck, engine_figures
from overnight.tasks.write.stream.progress import StreamStopped, follow
from overnight.tasks.write.stream.run_progress import RunProgress

if TYPE_CHECKING:
    import ray.data

    from overnight.tasks.write.stream.staging import Staging

__all__ = [
    "PartStager",
    "Repaired",
    "ReplacedFiles",
    "files_to_replace",
    "is_under_way",
    "published_already",
    "repair",
    "stage_remaining",
    "write",
]

ShowProgress = Callable[[Run], contextlib.AbstractContextManager[Callable[[Progress], None]]]


@dataclass(frozen=True)
class PartStager(Stager):
    """Stages the rows of a stream in parts.

    `rules` are those of the `deduplicate` steps after the last model. `show_progress` returns a context with a function
    that shows the progress of each stage.
    """

    sink: Sink
    checks: Checks
    rules: Sequence[Rule]
    show_progress: ShowProgress

    def stage(self, run: Run, dataset: "ray.data.Dataset", names: OperatorNames, sampled: Sampled) -> Streamed:
        """Run a dataset whose rows have passed all models, stage them, and return the stream's result.

        Raise the error that stopped the stream, with its stage. The rows quarantined by then are kept.
        """
        from overnight.tasks.write.stream.staging import Staging

        with _quarantine_kept(run):
            if self.checks.python:
                probe(self.checks.python)  # a check that cannot be imported fails now, not after the last row
            counts, _ = read_manifest(run.manifest, COUNTS)
            count = read_plan.read_earlier(run.order).quarantined
            supervisor.emit(run, quarantine_limit(run, self.checks, counts, count))
            warnings = sampled.warnings
            if sampled.failed:
                sentence, block = sampled.failed
                warnings = (*warnings, sentence)
                with contextlib.suppress(*([TooManyQuarantined] if sampled.error else [])):  # the error explains more
                    supervisor.report_quarantined(block, None, run)
            if sampled.error:
                raise ContractError(sampled.error, "infer")
            if sampled.columns:
                self.sink.refuse_columns(run, sampled.columns)
                require_keys(self.rules, sampled.columns.names)
            streamed = _stream(run, counts, Staging(run, self.sink), dataset, names, self.show_progress)
            streamed.columns, streamed.warnings = sampled.columns, warnings
            return streamed


@dataclass(frozen=True)
class _Staged:
    """The staged parts of a partition, which settle each source row once.

    `counts` and `inputs` are of the manifest, and `merged` has the ranges of the parts.
    """

    counts: pa.Table
    inputs: Any
    records: list[staged_parts.Record]
    merged: pa.Table
    rows_duplicate: int
    totals: Totals
    continued: Continued | None


@task(name="write", task_run_name="write: verify, merge, publish", cache_policy=NO_CACHE, persist_result=False)
def write(
    run: Run,
    sink: Sink,
    checks: Checks,
    rules: Sequence[Rule],
    may_be_empty: bool,
    plan: Plan,
    settings: Mapping[str, Any],
    streamed: Streamed,
) -> State[dict[str, Any]]:
    """Verify staged parts against the manifest, run the checks, merge the parts, publish them, and return the receipt.

    A later try completes an interrupted publish, or rolls it back. Raise `CheckFailed` if the audit or a check fails.
    """
    with _quarantine_kept(run):
        lease.check(run.ledger, run.token)  # a running publish may be that of a run which took over
        if repair_result := repair(run, sink):
            get_run_logger().warning(str(repair_result))
        if receipt := published_already(run):
            return Completed(message="the publish of an earlier attempt is complete", data=receipt)
        if (prefect.runtime.task_run.run_count or 1) > 1:
            run = run.as_new_attempt()  # its files have other names than those of the previous try
        parts = _verified(run, rules, streamed)
        base = parts.continued
        with prepared(run, sink, parts.records, parts.merged, base.kept if base else None) as ready:
            if base:
                refuse_other_columns(base, ready)
            errors = staged_parts.read_errors(run.parts, parts.records, parts.merged)
            receipt = _receipt(run, sink, checks, parts, ready, errors, streamed)
            receipt |= supervisor.spent(run)
            receipt |= {"settings": settings, "performance": _performance(run, plan, receipt, streamed)}
            if reused := reused_answers(run, settings):
                receipt["reused"] = reused
            places = [*published_places(run, base), *(file.place for file in ready.files)]
            agreement = compare_with_published(run, checks.agreement, sink, receipt["columns"], places)
            receipt |= verdict(run, checks, receipt, places, may_be_empty, losing_stage(errors), agreement)
            receipt["warnings"] += [*warnings_of_left_out(parts.records, ready), *streamed.warnings]
            for warning in receipt["warnings"]:
                get_run_logger().warning(warning)
            receipt["warnings"] = [*read_warnings(run.manifest), *receipt["warnings"]]
            receipt["logs"] = supervisor.kept_log(run)  # after the job's own check, which may print
            leave_for_next(run, parts.records, parts.merged, ready, receipt["files"])
            receipt = publish(run, sink, ready, errors, receipt)
        return Completed(message=f"{receipt['rows_out']:,} rows published to {sink.shown(run)}", data=receipt)


def _verified(run: Run, rules: Sequence[Rule], streamed: Streamed) -> _Staged:
    """Return the staged parts without duplicates. Raise `CheckFailed` unless they settle each source row once."""
    counts, inputs = read_manifest(run.manifest, COUNTS)
    records, base = staged_parts.read_records(run.parts), read_continued(run)
    if base is None:  # the published rows have the types
        schemas = [read_schema(run.manifest)]
        if streamed.columns:
            schemas.append(publishable(streamed.columns.empty_table()).schema)
        records = with_known_types(records, schemas, run)
    ranges = row_ranges.merge([record.ranges for record in records])
    records, ranges, duplicates = drop_duplicates(run.parts, records, ranges, rules)
    duplicates += decision.count_all(run.duplicates)
    return _Staged(counts, inputs, records, ranges, duplicates, audit(counts, ranges, run), base)


def _receipt(
    run: Run, sink: Sink, checks: Checks, staged: _Staged, ready: Prepared, errors: pa.Table, streamed: Streamed
) -> dict[str, Any]:
    """Return the receipt before the checks."""
    records, totals, base = staged.records, staged.totals, staged.continued
    columns = {**ready.columns, **statistics_of_left_out(records, ready)}
    left_out = set(columns_not_published(records))
    facts = {
        "rows_duplicate": staged.rows_duplicate,
        "inputs": staged.inputs,
        "passed_over": read_passed_over(run.manifest),
        "unreadable": unreadable(errors, staged.counts, run.manifest, totals.rows),
        "columns": summary(columns, checks.drift),
        "incidents": supervisor.snapshot(run).incidents,
        "left_out": sorted(left_out.difference(ready.schema.names)),
        "bytes_in": int(pc.sum(staged.counts["size"]).as_py() or 0),
        "samples": streamed.samples,
    }
    if hits := rows_remembered(records):
        facts["rows_remembered"] = hits
    if batches := read_json(run.batches / "record.json"):
        facts["batches"] = batches
    files = sink.published(run, ready)
    if base:
        files = [*base.kept.files, *files]
    receipt = make_receipt(run, totals, ready.rows, records, files, facts, streamed)
    if base:
        arguments = (records, staged.merged, totals, ready.rows, receipt["finished_at"])
        receipt |= continued_receipt(run, base, *arguments)
    elif whole := (read_json(run.home / "generation.json") or {}).get("all_rows"):
        receipt["all_rows"] = whole
    return receipt


def _performance(run: Run, plan: Plan, receipt: Mapping[str, Any], streamed: Streamed) -> dict[str, Any]:
    snapshot, capacity = supervisor.snapshot(run), Capacity(plan.cpus, plan.device_workers)
    figures = {"peak_device_memory_bytes": snapshot.device_memory, "batch_sizes": snapshot.batch_sizes}
    first = (streamed.first_seconds, streamed.first_rows)
    performance = bottleneck(receipt["stages"], capacity, streamed.seconds, *first) | figures
    gpus = {pool.label: pool.num_gpus * pool.initial for pool in plan.pools}
    if engines := engine_figures(snapshot.engines, gpus, streamed.seconds - performance["start_seconds"]):
        performance["engines"] = engines
    return performance


def published_already(run: Run) -> dict[str, Any] | None:
    """Return the receipt of the run's generation if that is the published generation, otherwise None."""
    receipt = read_json(run.ledger / "receipt.json")
    return receipt if receipt and receipt["generation"] == run.generation else None


@contextlib.contextmanager
def _quarantine_kept(run: Run) -> Iterator[None]:
    """Keep the quarantined rows if the body fails, unless another run holds the partition by now.

    The error of a check gets their place and their reasons.
    """
    try:
        yield
    except lease.LeaseLost:
        raise
    except OvernightError as error:
        quarantine = keep_quarantine(run)
        if len(quarantine) and isinstance(error, CheckFailed):
            raise detached(type(error)(f"{error}\n{reasons_of(quarantine, run)}", error.stage)) from None
        raise detached(error) from None


def _reason_to_end(run: Run) -> OvernightError | None:
    """Return why the stream must end now: a user, or the run's minutes once no request is under way; otherwise None."""
    if supervisor.ask(run, Supervisor.must_stop):
        return StreamStopped("A user interrupted the run.")
    if run.ends_at and time.time() >= run.ends_at and not supervisor.ask(run, Supervisor.is_asking):
        return BudgetReached(minutes_reached(run.budget["minutes"]))
    return None


def _stream(
    run: Run,
    counts: pa.Table,
    staging: "Staging",
    dataset: "ray.data.Dataset",
    names: OperatorNames,
    show_progress: ShowProgress,
) -> Streamed:
    failure = None
    supervisor.emit(run, StreamRuns(True))
    try:
        with (
            show_progress(run) as show,
            follow(
                dataset,
                names,
                RunProgress(run, counts, staging, show).look,
                run.stall_timeout_seconds,
                partial(_reason_to_end, run),
            ) as streamed,
        ):
            try:
                if reason := _reason_to_end(run):
                    raise reason
                for bundle in dataset.iter_internal_ref_bundles():
                    for block in bundle.blocks:
                        staging.add(block.ref, block.metadata.num_rows or 0, block.metadata.size_bytes or 0)
            except Exception as error:
                if isinstance(find_cause(error), StreamStopped | BudgetReached):
                    staging.finish()
                raise
            staging.finish()
    except Exception as error:
        failure = explain(error, "write")  # other stages name themselves
    supervisor.emit(run, StreamRuns(False))
    if failure is not None:
        raise detached(failure)
    streamed.write_seconds = staging.staged.seconds
    if staging.times:
        streamed.times["write"] = staging.times
    return streamed
