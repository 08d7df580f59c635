"""Choose rows of a result to show: the first that meet a condition, with the images from which they were made."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.tasks.errors import ContractError, JobError, OvernightError, RowError
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.storage.location import Location

READS_AT_ONCE = 8
QUARANTINE = ("error_message", "error_type", "stage", "row_id", "uri")  # the reason first


@dataclass(frozen=True)
class Chosen:
    """The chosen rows. `looked_at` is the number of rows that were read to find them.

    `unclear` has a text `row_id: error` for each row on which the condition failed.
    """

    table: pa.Table
    looked_at: int
    unclear: tuple[str, ...] = ()


def choose(tables: Iterable[pa.Table], count: int, where: str = "") -> Chosen:
    """Return the first `count` rows that meet the condition `where`. Without a condition, all rows meet it."""
    try:
        condition = Expression(where) if where else None
    except ValueError as error:
        raise JobError(f"--where: {error}") from None
    parts: list[pa.Table] = []
    problems: list[str] = []
    rows_read, missing = 0, count
    for table in tables:
        rows_read += len(table)
        rows = table
        if condition and len(table):
            rows, errors = _rows_that_meet(condition, table)
            problems += [f"{table['row_id'][row].as_py()}: {error}" for row, error in errors.items()]
        parts.append(rows.slice(0, missing))
        missing -= len(parts[-1])
        if missing <= 0:
            break
    rows = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
    return Chosen(rows, rows_read, tuple(problems))


def _rows_that_meet(condition: Expression, table: pa.Table) -> tuple[pa.Table, dict[int, RowError]]:
    try:
        mask, errors = condition.holds(table, "--where", "plan")
    except ContractError as error:
        raise JobError(str(error)) from None
    except RowError as error:
        return table.slice(0, 0), {0: error}
    return table.filter(pa.array(mask)), errors


def with_inputs(rows: pa.Table, job: Job) -> pa.Table:
    """Return rows of a job of images with a column `image` added: the bytes of the file that `uri` names."""
    if not job.source.holds_images or "uri" not in rows.column_names or "image" in rows.column_names:
        return rows

    def read(uri: str | None) -> bytes | None:
        try:
            return Location(uri).read_bytes() if uri else None
        except (OSError, OvernightError, ValueError):  # ValueError: a name that no file has
            return None

    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        files = list(pool.map(read, rows["uri"].to_pylist()))
    return rows.add_column(min(1, rows.num_columns), "image", pa.array(files, pa.large_binary()))
