"""Print the end of `overnight run`: the receipt in a few lines, the reasons of the quarantine, and the first rows."""

import shlex
from typing import TYPE_CHECKING, Any

from overnight.api.console import VisibleConsole
from overnight.tasks.config.masking import filled_in

if TYPE_CHECKING:
    from rich.console import Console

    from overnight.flows.job.model import Job

ROWS_SHOWN, REASONS_SHOWN, FILES_SHOWN = 2, 3, 3


def show_receipt(receipt: dict[str, Any], job: "Job", file: str) -> None:
    """Print a receipt on stdout, with its first rows. `file` is the job file as the user wrote it."""
    console = VisibleConsole(highlight=False, soft_wrap=True)
    _show_head(console, receipt, job)
    _show_counts(console, receipt)
    if receipt["rows_quarantined"]:
        _show_quarantine(console, receipt, job)
    _show_places(console, receipt, job)
    if receipt["rows_out"]:
        _show_first_rows(console, receipt, job)
    options = f"{day_option(job, receipt['partition'])}{' --sample' * bool(receipt.get('limit_rows'))}"
    console.print(f"  more: overnight show {shlex.quote(file)}{options}", markup=False)


def next_steps(job: "Job", day: str, file: str, limit_rows: int | None, options: list[str]) -> list[str]:
    """Return the commands to type after a failed run: to show the rows that failed, if it kept them, and to run again.

    `file` is the job file as the user wrote it. A run of a sample has `limit_rows`. `options` are options of the failed
    run that the second command repeats.
    """
    from overnight.flows.ledger.results import Results

    which = f"{shlex.quote(file)}{day_option(job, day)}"
    lines = []
    try:
        if Results(job, file).failed_rows(day, bool(limit_rows)) is not None:
            lines = [f"look at its rows: overnight show {which}{' --sample' * bool(limit_rows)} --quarantine"]
    except Exception:  # a store that is down ended the run, and its error is the one to read
        pass
    return [*lines, f"run it again: overnight run {which}{''.join(f' {shlex.quote(option)}' for option in options)}"]


def day_option(job: "Job", day: str) -> str:
    """Return ` --partition D` for a job with days, otherwise an empty string."""
    return f" --partition {day}" if job.is_dated else ""


def _show_head(console: "Console", receipt: dict[str, Any], job: "Job") -> None:
    name = f"[bold]{receipt['job']}/{receipt['partition']}[/bold]"
    if not receipt.get("limit_rows"):
        console.print(f"{name} {receipt['status']} at {receipt['finished_at']}")
        return
    place, files = job.output_location(is_sample=True), receipt["files"]
    where = place / files[0] if len(files) == 1 else place
    console.print(f"{name}: sample of {receipt['rows_in']:,} rows, nothing published: ", end="")
    console.print(filled_in(str(where)), markup=False)


def _show_counts(console: "Console", receipt: dict[str, Any]) -> None:
    from overnight.tasks.storage import skipped_files

    duplicates = receipt.get("rows_duplicate")
    console.print(
        f"  rows: {receipt['rows_in']:,} in, {receipt['rows_out']:,} out, {receipt['rows_filtered']:,} filtered"
        f"{f' ({duplicates:,} duplicates dropped)' if duplicates else ''}, "
        f"{receipt['rows_quarantined']:,} quarantined, {receipt['rows_resumed']:,} resumed"
    )
    if retried := receipt.get("retried"):
        console.print(
            f"  retried: {retried['rows_quarantined_before']:,} quarantined before; now {retried['rows_written']:,} "
            f"written, {retried['rows_filtered']:,} filtered, {retried['rows_quarantined']:,} quarantined"
        )
    console.print(f"  time: {receipt['seconds']:,.1f} s, {receipt['rows_per_second']:,.1f} rows/s")
    if passed := skipped_files.told(receipt.get("passed_over", {})):
        console.print(f"  passed over: {passed}", markup=False)


def _show_quarantine(console: "Console", receipt: dict[str, Any], job: "Job") -> None:
    """Print the most frequent reasons, and where the rows with their reasons are."""
    from overnight.flows.ledger.published_rows import quarantine_of, records_of
    from overnight.tasks.write.in_process import reasons

    try:
        for line in reasons(quarantine_of(job, receipt), REASONS_SHOWN):
            console.print(f"  quarantined: {line}", markup=False)
    except Exception as error:  # the receipt is of use without them
        console.print(f"  quarantined: the reasons cannot be read: {error}", markup=False)
    records = records_of(job, receipt["partition"], bool(receipt.get("limit_rows")))
    console.print(f"  quarantine: {filled_in(str(records / 'quarantine'))}", markup=False)


def _show_places(console: "Console", receipt: dict[str, Any], job: "Job") -> None:
    if left_out := receipt.get("left_out"):
        console.print(f"  columns left out: {', '.join(left_out)} (see sink.keep_columns)", markup=False)
    for warning in receipt.get("warnings", []):
        console.print(f"  warning: {warning}", markup=False)
    if receipt.get("logs"):
        console.print(f"  printed and logged: {filled_in(receipt['logs'])}", markup=False)
    place, files = job.output_location(bool(receipt.get("limit_rows"))), receipt["files"]
    for file in files[:FILES_SHOWN]:
        console.print(f"  file: {filled_in(str(place / file))}", markup=False)
    if len(files) > FILES_SHOWN:
        console.print(f"  and {len(files) - FILES_SHOWN} more files")


def _show_first_rows(console: "Console", receipt: dict[str, Any], job: "Job") -> None:
    from overnight.cli.rows_view import show_rows
    from overnight.flows.ledger.chosen_rows import choose
    from overnight.flows.ledger.published_rows import batches

    try:
        rows = choose(batches(job, receipt), ROWS_SHOWN).table
    except Exception as error:  # the rows are published, whether they can be read back here or not
        console.print(f"  the rows cannot be shown: {error}", markup=False)
    else:
        show_rows(VisibleConsole(highlight=False), rows)
