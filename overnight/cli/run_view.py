"""Print the end of `overnight run`: the receipt in a few lines, the reasons of the quarantine, and the first rows."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from overnight.api.console import VisibleConsole
from overnight.tasks.config.masking import filled_in

if TYPE_CHECKING:
    from rich.console import Console

    from overnight.flows.job.model import Job
    from overnight.flows.job.outputs import Outputs

ROWS_SHOWN, REASONS_SHOWN, FILES_SHOWN = 2, 3, 3


def show_receipt(receipt: dict[str, Any], job: "Job", file: str) -> None:
    """Print a receipt on stdout, with its first rows. `file` is the job file as the user wrote it."""
    console = VisibleConsole(highlight=False, soft_wrap=True)

    def print_line(line: str) -> None:
        console.print(f"  {line}", markup=False)

    _show_head(console, receipt, job)
    for line in _counts(receipt):
        print_line(line)
    if receipt["rows_quarantined"]:
        for line in _quarantine(receipt, job):
            print_line(line)
    for line in _remarks_and_files(receipt, job):
        print_line(line)
    if receipt["rows_out"]:
        _show_first_rows(console, receipt, job)
    outputs = job.outputs_of(receipt)
    for line in _report(outputs, receipt["partition"]):
        print_line(line)
    options = day_option(job, receipt["partition"]) + outputs.show_option
    print_line(f"more: overnight show {shlex.quote(file)}{options}")


def next_steps(
    job: "Job", day: str, file: str, outputs: "Outputs", options: list[str], is_cancelled: bool = False
) -> list[str]:
    """Return the report of a failed run, and the commands to type: to show rows that failed, and to run again.

    `file` is the job file as the user wrote it. The second command repeats `options` of the failed run.
    """
    from overnight.flows.ledger.results import Results
    from overnight.flows.report.spending import spent_text

    partition = f"{shlex.quote(file)}{day_option(job, day)}"
    lines: list[str] = []
    try:
        results = Results(job, file, outputs)
        failure = results.failure(day)
        if text := spent_text(failure or {}):
            lines.append(f"spent: {text}")
        if is_cancelled or failure:
            lines += _report(outputs, day)
        if results.failed_rows(day) is not None:
            lines.append(f"look at its rows: overnight show {partition}{outputs.show_option} --quarantine")
    except Exception:  # a store that is down ended the run, and its error is the one to read
        pass
    return [*lines, " ".join(["run it again: overnight run", partition, *map(shlex.quote, options)])]


def _report(outputs: "Outputs", day: str) -> Iterator[str]:
    from overnight.tasks.state.run import REPORT

    page = outputs.ledger(day) / REPORT
    try:
        is_kept = page.exists()
    except Exception:  # the end of the run is of use without it
        return
    if is_kept:
        yield f"report: {filled_in(str(page))}"


def day_option(job: "Job", day: str) -> str:
    """Return ` --partition D` for a job with days, otherwise an empty string."""
    return f" --partition {day}" if job.is_dated else ""


def _show_head(console: "Console", receipt: dict[str, Any], job: "Job") -> None:
    name = f"[bold]{receipt['job']}/{receipt['partition']}[/bold]"
    outputs = job.outputs_of(receipt)
    if not outputs.are_samples:
        console.print(f"{name} {receipt['status']} at {receipt['finished_at']}")
        return
    location, files = outputs.files, receipt["files"]
    if len(files) == 1:
        location = location / files[0]
    console.print(f"{name}: sample of {receipt['rows_in']:,} rows, nothing published: ", end="")
    console.print(filled_in(str(location)), markup=False)


def _counts(receipt: dict[str, Any]) -> Iterator[str]:
    from overnight.flows.report.spending import spent_text
    from overnight.tasks.engine.progress_text import cost_text
    from overnight.tasks.storage import skipped_files

    line = f"rows: {receipt['rows_in']:,} in, {receipt['rows_out']:,} out, {receipt['rows_filtered']:,} filtered"
    if duplicates := receipt.get("rows_duplicate"):
        line += f" ({duplicates:,} duplicates dropped)"
    yield f"{line}, {receipt['rows_quarantined']:,} quarantined, {receipt['rows_resumed']:,} resumed"
    if retry := receipt.get("retried"):
        yield (
            f"retried: {retry['rows_quarantined_before']:,} quarantined before; now {retry['rows_written']:,} "
            f"written, {retry['rows_filtered']:,} filtered, {retry['rows_quarantined']:,} quarantined"
        )
    for name, rows in receipt.get("rows_remembered", {}).items():
        yield f"remembered by {name}: {rows:,} rows of earlier runs"
    if counts := receipt.get("continued"):
        line = f"kept: {counts['rows_reused']:,} rows as they were published; {counts['rows_added']:,} added, "
        yield f"{line}{counts['rows_changed']:,} changed, {counts['rows_removed']:,} removed"
    if reason := receipt.get("all_rows"):
        yield f"all rows ran, although only inputs changed: {reason}"
    if undo := receipt.get("undo"):
        yield f"undo: again the rows of {undo['generation']}; undone by {undo['by']}: {undo['undone']['generation']}"
    for name, saving in receipt.get("reused", {}).items():
        line = f"reused by {name}: {saving['answers']:,} answers of earlier runs"
        line += f", {saving['prompt_tokens']:,} + {saving['completion_tokens']:,} tokens"
        if "cost" in saving:
            line += f", a cost of {cost_text(saving['cost'])} saved"
        yield line
    yield f"time: {receipt['seconds']:,.1f} s, {receipt['rows_per_second']:,.1f} rows/s"
    if text := spent_text(receipt):
        yield f"spent: {text}"
    if files := skipped_files.told(receipt.get("passed_over", {})):
        yield f"passed over: {files}"


def _quarantine(receipt: dict[str, Any], job: "Job") -> Iterator[str]:
    """Yield the most frequent reasons, and where the rows with their reasons are."""
    from overnight.flows.ledger.published_rows import quarantine_of, records_of_receipt
    from overnight.tasks.write.in_process import reasons

    try:
        for reason in reasons(quarantine_of(job, receipt), REASONS_SHOWN):
            yield f"quarantined: {reason}"
    except Exception as error:  # the receipt is of use without them
        yield f"quarantined: the reasons cannot be read: {error}"
    yield f"quarantine: {filled_in(str(records_of_receipt(job, receipt) / 'quarantine'))}"


def _remarks_and_files(receipt: dict[str, Any], job: "Job") -> Iterator[str]:
    if columns := receipt.get("left_out"):
        yield f"columns left out: {', '.join(columns)} (see sink.keep_columns)"
    for warning in receipt.get("warnings", []):
        yield f"warning: {warning}"
    if receipt.get("logs"):
        yield f"printed and logged: {filled_in(receipt['logs'])}"
    location, files = job.outputs_of(receipt).files, receipt["files"]
    for file in files[:FILES_SHOWN]:
        yield f"file: {filled_in(str(location / file))}"
    if len(files) > FILES_SHOWN:
        yield f"and {len(files) - FILES_SHOWN} more files"


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
