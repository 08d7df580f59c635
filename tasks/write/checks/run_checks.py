"""Run every check of the job on a partition before its publish, and report all failures in one message.

The checks use the counts and `columns` of the receipt as it will be written, and an earlier receipt. Only the job's own
check gets the rows, and `agreement.py` reads them. When a check fails, nothing has changed yet.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from overnight.tasks.errors import CheckFailed, did_you_mean
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.agreement import AgreementResult
from overnight.tasks.write.checks.column_statistics import Columns
from overnight.tasks.write.checks.drift import compare
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
    agreement: AgreementResult | None = None,
) -> dict[str, Any]:
    """Run all checks, and return the receipt's keys `checks` and `warnings`. Raise `CheckFailed` with all failures.

    `files` are Parquet files. If too many rows are quarantined, the error names `losing_stage`, which lost the most.
    """
    previous = previous_receipt(run) if checks.drift or checks.python else None
    columns = receipt["columns"]
    failures = list(count_failures(checks, receipt, may_be_empty))
    if receipt["rows_out"]:  # otherwise there are no columns to check
        failures += unknown_columns(checks, columns)
        failures += null_violations(checks, columns)
        failures += constant_violations(checks, columns)
    drift = compare(checks, columns, previous)
    failures += drift.failures
    agreement = agreement or AgreementResult()
    failures += agreement.failures
    if checks.python:
        for sentence in ask(checks.python, receipt, previous, files, run):
            failures.append(f"checks.python: {checks.python}: {sentence}")
    if failures:
        is_of_rows = failures[0].startswith("checks.max_quarantined")
        raise CheckFailed(_message(run, failures), losing_stage if is_of_rows else "write")
    comparison = {name: previous[name] for name in ("partition", "generation")} if previous else None
    warnings = list(empty_columns(columns))
    if receipt.get("unreadable"):
        warnings.insert(0, f"{told(receipt['unreadable'])} are lost.")
    results = {"previous": comparison, "drift": drift.measured, "notes": drift.notes + agreement.notes}
    if agreement.measured:
        results["agreement"] = agreement.measured
    return {"checks": results, "warnings": warnings}


def count_failures(checks: Checks, receipt: dict[str, Any], may_be_empty: bool = True) -> Iterator[str]:
    """Yield a sentence for each violation of `max_quarantined`, `min_rows` and `allow_empty` by the counts."""
    total, filter_count, bad_rows = (receipt[f"rows_{name}"] for name in ("in", "filtered", "quarantined"))
    rows_out = total - filter_count - bad_rows
    loss, more_rows, among = receipt.get("unreadable"), 0, ""
    allowed_files = 0
    if loss:
        more_rows, among = loss["rows_about"] - loss["rows_counted"], f", {told(loss)} among them"
        allowed_files = fraction_of(checks.max_quarantined, loss["of_files"])
    limit = checks.quarantine_limit(total + more_rows)
    if bad_rows + more_rows > limit:
        yield (
            f"checks.max_quarantined: {bad_rows + more_rows} of {total + more_rows} rows are quarantined{among}, "
            f"{limit} are allowed ({checks.max_quarantined:g})."
        )
    elif loss and loss["files"] > allowed_files:
        yield (  # a file that was cut short has few bytes for an estimate
            f"checks.max_quarantined: {loss['files']} of {loss['of_files']} files cannot be read, {allowed_files} are "
            f"allowed ({checks.max_quarantined:g})."
        )
    if not total and not may_be_empty:
        yield (
            "source.allow_empty: expected rows in the inputs, found none. Set it to true if an empty partition is "
            "expected."
        )
    if rows_out < checks.min_rows and (total or not may_be_empty):
        yield (
            f"checks.min_rows: expected at least {checks.min_rows} rows, found {rows_out} "
            f"({filter_count} filtered, {bad_rows} quarantined)."
        )


def unknown_columns(checks: Checks, columns: Columns) -> Iterator[str]:
    """Yield a sentence for each setting of `checks` that names a column which does not exist."""
    for setting, name in checks.columns().items():
        if name not in columns:
            hint = did_you_mean(name, columns)
            yield f"checks.{setting}: found no such column{hint}; the columns are {', '.join(columns)}."


def null_violations(checks: Checks, columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column in which more rows are null or have NaN than `checks.max_null` allows."""
    for name, fraction in checks.max_null.items():
        if name not in columns:
            continue
        record = columns[name]
        rows, nulls, nan = record["rows"], record["nulls"], record.get("nan", 0)
        limit = fraction_of(fraction, rows)
        if nulls + nan > limit:
            detail = f" and {nan} with NaN" if "nan" in record else ""
            yield (
                f"checks.max_null.{name}: expected at most {limit} of {rows} rows without a value ({fraction:g}), "
                f"found {nulls} null{detail}."
            )


def constant_violations(checks: Checks, columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column of `checks.not_constant`, of two rows at least, without two different values."""
    for name in checks.not_constant:
        record = columns.get(name)
        if record is None or record["rows"] < 2:
            continue
        prefix = f"checks.not_constant.{name}: expected different values, found"
        if record["nulls"] == record["rows"]:
            yield f"{prefix} null in all {record['rows']} rows."
        elif record["constant"]:
            value = next(iter(record.get("classes") or ()), record.get("mean"))
            phrase = "one value" if value is None else f"the one value {value!r}"
            yield f"{prefix} {phrase} in all {record['rows'] - record['nulls']} rows that are not null."


def empty_columns(columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column in which every row is null or has NaN, whether a check names it or not."""
    for name, record in columns.items():
        if record["rows"] and record["nulls"] + record.get("nan", 0) == record["rows"]:
            yield f"the column {name} has only nulls or NaN in all {record['rows']} rows."


def _message(run: Run, failures: list[str]) -> str:
    text = failures[0]
    if len(failures) > 1:
        text = "\n  ".join([f"{len(failures)} checks failed:", *failures])
    return (
        f"{text}\nNothing was published. The rows are kept in {run.parts}/*.part (Parquet: DuckDB's read_parquet "
        "reads them), the reasons of quarantined rows in *.errors there. Correct the cause and run again; with "
        "another bound under checks the rows are published without a new computation."
    )
