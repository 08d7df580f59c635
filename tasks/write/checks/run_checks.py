"""Run every check of the job on a partition before its publish, and report all failures in one message.

The checks use the counts and `columns` of the receipt as it will be written, and an earlier receipt. Only the job's own
check gets the rows. When a check fails, nothing has changed yet.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.drift import compare
from overnight.tasks.write.checks.null_and_constant import (
    constant_violations,
    empty_columns,
    null_violations,
    unknown_columns,
)
from overnight.tasks.write.checks.previous_receipt import previous_receipt
from overnight.tasks.write.checks.settings import Checks, fraction_of
from overnight.tasks.write.checks.unreadable_files import told
from overnight.tasks.write.checks.user_check import ask


def verdict(
    run: Run,
    checks: Checks,
    receipt: dict[str, Any],
    files: Sequence[Location],
    may_be_empty: bool = True,
    losing_stage: str = "write",
) -> dict[str, Any]:
    """Run all checks of the job, and return two keys for the receipt: `checks` and `warnings`, a list of sentences.

    `checks` is a dict with the earlier receipt's partition and generation, the measured distances, and notes. Raise
    `CheckFailed` with all failed checks, their expected and found values, and the place of the rows.

    Args:
        receipt: The receipt as it will be written, but without these two keys.
        files: The Parquet files with the rows to publish, for the job's own check.
        may_be_empty: Whether a partition without source rows may be published; the source's `allow_empty`.
        losing_stage: The stage that quarantined the most rows. The error names it if too many rows are quarantined.
    """
    previous = previous_receipt(run) if checks.drift or checks.python else None
    columns = receipt["columns"]
    failures = list(count_failures(checks, receipt, may_be_empty))
    if receipt["rows_out"]:  # otherwise there are no columns to check
        failures += [
            *unknown_columns(checks, columns),
            *null_violations(checks, columns),
            *constant_violations(checks, columns),
        ]
    drifts = compare(checks, columns, previous)
    failures += drifts.failures
    if checks.python:
        answer = ask(checks.python, receipt, previous, files, run)
        failures += [f"checks.python: {checks.python}: {sentence}" for sentence in answer]
    if failures:
        is_of_rows = failures[0].startswith("checks.max_quarantined")
        raise CheckFailed(_message(run, failures), losing_stage if is_of_rows else "write")
    compared = {"partition": previous["partition"], "generation": previous["generation"]} if previous else None
    outcome = {"previous": compared, "drift": drifts.measured, "notes": drifts.notes}
    lost = [f"{told(receipt['unreadable'])} are lost."] if receipt.get("unreadable") else []
    return {"checks": outcome, "warnings": [*lost, *empty_columns(columns)]}


def count_failures(checks: Checks, receipt: dict[str, Any], may_be_empty: bool = True) -> Iterator[str]:
    """Yield a sentence for each violation of `max_quarantined`, `min_rows` and `allow_empty` by the receipt's counts.

    `may_be_empty` is the source's `allow_empty`. If it is True, a partition without source rows passes; otherwise it is
    a violation.
    """
    total, filtered, quarantined = (receipt[f"rows_{name}"] for name in ("in", "filtered", "quarantined"))
    written = total - filtered - quarantined
    lost = receipt.get("unreadable")
    uncounted = lost["rows_about"] - lost["rows_counted"] if lost else 0
    allowed = checks.quarantine_limit(total + uncounted)
    if quarantined + uncounted > allowed:
        among = f", {told(lost)} among them" if lost else ""
        yield (
            f"checks.max_quarantined: {quarantined + uncounted} of {total + uncounted} rows are quarantined{among}, "
            f"{allowed} are allowed ({checks.max_quarantined:g})."
        )
    elif lost and lost["files"] > (allowed := fraction_of(checks.max_quarantined, lost["of_files"])):
        yield (  # a file that was cut short has few bytes for an estimate
            f"checks.max_quarantined: {lost['files']} of {lost['of_files']} files cannot be read, {allowed} are "
            f"allowed ({checks.max_quarantined:g})."
        )
    if not total and not may_be_empty:
        yield (
            "source.allow_empty: expected rows in the inputs, found none. Set it to true if an empty partition is "
            "expected."
        )
    if written < checks.min_rows and (total or not may_be_empty):
        yield (
            f"checks.min_rows: expected at least {checks.min_rows} rows, found {written} "
            f"({filtered} filtered, {quarantined} quarantined)."
        )


def _message(run: Run, failures: list[str]) -> str:
    failed = failures[0] if len(failures) == 1 else "\n  ".join([f"{len(failures)} checks failed:", *failures])
    return (
        f"{failed}\nNothing was published. The rows are kept in {run.parts}/*.part (Parquet: DuckDB's read_parquet "
        "reads them), the reasons of quarantined rows in *.errors there. Correct the cause and run again; with "
        "another bound under checks the rows are published without a new computation."
    )
