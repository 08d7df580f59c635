"""Find violations of the checks `max_null` and `not_constant` in the columns of a receipt, as sentences."""

from collections.abc import Iterator

from overnight.tasks.errors import did_you_mean
from overnight.tasks.write.checks.column_statistics import Columns
from overnight.tasks.write.checks.settings import Checks, fraction_of


def unknown_columns(checks: Checks, columns: Columns) -> Iterator[str]:
    """Yield a sentence for each setting of `checks` that names a column which does not exist.

    `columns` are the statistics of the published columns, by column.
    """
    for setting, name in checks.columns().items():
        if name not in columns:
            hint = did_you_mean(name, columns)
            yield f"checks.{setting}: found no such column{hint}; the columns are {', '.join(columns)}."


def null_violations(checks: Checks, columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column in which more rows are null or have NaN than `checks.max_null` allows.

    `columns` are the statistics of the published columns, by column. A column that does not exist is skipped.
    """
    for name, fraction in checks.max_null.items():
        if name not in columns:
            continue
        record = columns[name]
        allowed, missing, nan = fraction_of(fraction, record["rows"]), record["nulls"], record.get("nan", 0)
        if missing + nan > allowed:
            yield (
                f"checks.max_null.{name}: expected at most {allowed} of {record['rows']} rows without a value "
                f"({fraction:g}), found {missing} null" + (f" and {nan} with NaN." if "nan" in record else ".")
            )


def constant_violations(checks: Checks, columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column of `checks.not_constant` that does not have two different values.

    `columns` are the statistics of the published columns, by column. A column that does not exist is skipped, and so is
    one of fewer than two rows.
    """
    for name in checks.not_constant:
        record = columns.get(name)
        if record is None or record["rows"] < 2:
            continue
        if record["nulls"] == record["rows"]:
            yield f"checks.not_constant.{name}: expected different values, found null in all {record['rows']} rows."
        elif record["constant"]:
            value = next(iter(record.get("classes") or ()), record.get("mean"))
            shown = "one value" if value is None else f"the one value {value!r}"
            yield (
                f"checks.not_constant.{name}: expected different values, found {shown} in all "
                f"{record['rows'] - record['nulls']} rows that are not null."
            )


def empty_columns(columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column in which every row is null or has NaN, whether a check names it or not.

    `columns` are the statistics of the published columns, by column.
    """
    for name, record in columns.items():
        if record["rows"] and record["nulls"] + record.get("nan", 0) == record["rows"]:
            yield f"the column {name} has only nulls or NaN in all {record['rows']} rows."
