"""Run a job from Python: one partition, or those of a range of dates."""

from collections.abc import Iterable
from datetime import date
from typing import Any

from overnight.api.job_files import AnyJob, Overrides, as_date, as_day, prepared
from overnight.api.process_state import leaves_no_trace, restored
from overnight.api.receipt import Receipt
from overnight.api.statuses import Statuses
from overnight.flows.backfill_plan import DEFAULT_SELECT, Order, Select, entries_of, planned
from overnight.flows.job.loading import JobFile
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import JobError


@leaves_no_trace
def run(
    job: AnyJob,
    partition: str | date | None = None,
    *,
    data: Any = None,
    settings: Overrides = (),
    force: bool = False,
    retry_quarantined: bool = False,
    limit_rows: int | None = None,
    reason: str = "",
    verbose: bool = False,
    progress: bool = True,
) -> Receipt:
    """Run one partition of a job, publish it, and return its receipt, as `overnight run` does.

    A partition that is published and not stale does not run again: its receipt is returned.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file. Relative paths
            are relative to the working directory.
        partition: The day, as `YYYY-MM-DD` or a date. By default it is yesterday in the job's time zone, or the
            day that `schedule.offset_days` sets. A job without dates has only `all`.
        data: The rows that replace the job's source, which the job does not need then. They are a DataFrame of pandas
            or Polars, an Arrow table or reader, a Ray Dataset, a list of dicts, or an object with
            `__arrow_c_stream__`.
        settings: Settings to override for this run: dotted key -> value, such as `{"inference.0.batch_size": 8}`.
        force: Run the partition again even if it is published and not stale.
        retry_quarantined: Run only the quarantined rows of the published partition again; they join its rows.
        limit_rows: Run only this number of rows, the first ones, and publish them to a scratch folder as a sample.
        reason: The reason for this run, for the receipt.
        verbose: Show the log of the run: the output of models and steps.
        progress: Show the progress: a screen on a terminal and in a notebook, otherwise lines on stderr.

    Returns:
        The receipt, with its keys as attributes: `receipt.rows_out`.

    Raises:
        JobError: The job, a setting, the partition or the data is wrong. Nothing was published.
        OvernightError: The run failed or was cancelled. The message is that of the terminal.
    """
    if limit_rows is not None and limit_rows < 1:
        raise JobError(f"limit_rows: expected at least 1, found {limit_rows}.")
    with prepared(job, settings, as_day(partition), data) as call:
        from overnight.api.local_run import run_locally, screen_for

        with screen_for(progress, verbose) as screen:
            receipt = run_locally(
                call.path,
                call.job,
                screen,
                partition=call.partition,
                force=force,
                reason=masked(reason),
                limit_rows=limit_rows or 0,
                settings=list(call.settings),
                retry_quarantined=retry_quarantined,
            )
        return Receipt(receipt, call.job)


@restored()
def undo(job: AnyJob, partition: str | date | None = None, *, to: str | int = "", reason: str = "") -> Receipt:
    """Publish earlier rows of a partition again, as `overnight undo` does, and return the new receipt.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file.
        partition: The day, as `YYYY-MM-DD` or a date; by default the newest that is published.
        to: The number of the publication, 1 for the oldest, or its generation; by default the one before.
        reason: The reason, for the receipt.

    Raises:
        JobError: The job or the publication is wrong.
        OvernightError: The rows are no longer there, or a run works on the partition. Nothing was changed.
    """
    with prepared(job) as call:
        from overnight.flows.ledger.undo import undo as undo_partition

        return Receipt(undo_partition(call.job, as_day(partition), str(to), masked(reason), str(call.path)), call.job)


@leaves_no_trace
def backfill(
    job: AnyJob,
    start: str | date | None = None,
    end: str | date | None = None,
    *,
    select: Iterable[Select] = DEFAULT_SELECT,
    order: Order = "oldest",
    max_concurrent: int = 1,
    stop_on_failure: bool = False,
    dry_run: bool = False,
    resume: str = "",
    settings: Overrides = (),
    reason: str = "",
    where: Iterable[str] = (),
    verbose: bool = False,
    progress: bool = True,
) -> Statuses:
    """Run the partitions of a range of dates, as `overnight backfill` does. Each publishes separately.

    Args:
        job: The path of a job file, an `overnight.Job`, or a dictionary with the keys of a job file.
        start: The first day, as `YYYY-MM-DD` or a date.
        end: The last day; it runs too.
        select: The statuses of the partitions to run: `missing`, `failed`, `stale`, `quarantined` or `all`.
            `quarantined` runs only the quarantined rows of published partitions.
        order: The day to begin with: `oldest` or `newest`.
        max_concurrent: The number of partitions that run at the same time.
        stop_on_failure: Start no more partitions after one has failed.
        dry_run: Only return the partitions that would run, with their statuses before the run.
        resume: The id of an earlier backfill, whose unfinished partitions run.
        settings: Settings to override in every run: dotted key -> value, such as `{"inference.0.batch_size": 8}`.
        reason: The reason, for the receipts.
        where: Only partitions that meet these conditions, such as `region=eu`.
        verbose: Show the log of the runs.
        progress: Show the progress: a screen on a terminal and in a notebook, otherwise lines on stderr.

    Returns:
        The status of each partition after the backfill, by date.

    Raises:
        JobError: The job, a setting or a date is wrong. Nothing was started.
        BackfillFailed: Some partitions failed; `overnight.status` has them.
        OvernightError: The backfill could not begin, or was cancelled.
    """
    first, last = as_date(start), as_date(end)
    with prepared(job, settings) as call:
        options: dict[str, Any] = {"select": list(select), "order": order, "settings": list(call.settings)}
        options |= {"reason": masked(reason), "where": list(where)}
        full_job, request, steps = planned(
            JobFile(call.path), resume or "new", first, last, **options, is_resumed=bool(resume)
        )
        if steps and not dry_run:
            from overnight.api.local_run import backfill_locally, screen_for

            options |= {"max_concurrent": max_concurrent, "stop_on_failure": stop_on_failure, "resume": resume}
            with screen_for(progress, verbose) as screen:
                backfill_locally(call.path, call.job, screen, start=first, end=last, **options)
        entries = [step.entry for step in steps] if dry_run else entries_of(full_job, request, steps)
    return Statuses(entries, full_job.name, full_job.reports)
