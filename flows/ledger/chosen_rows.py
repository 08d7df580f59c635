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
    """Return the first `count` rows that meet the condition `where`. Without a condition, all rows meet it.

    The condition is a SQL expression over one row. A row on which it fails is left out. Raise `JobError` for a
    condition that is not valid.
    """
    condition = _condition(where) if where else None
    found: list[pa.Table] = []
    unclear: list[str] = []
    looked_at = 0
    for table in tables:
        looked_at += len(table)
        kept = table
        if condition and len(table):
            kept, failed = _holds(condition, table)
            unclear += [f"{table['row_id'][row].as_py()}: {error}" for row, error in failed.items()]
        found.append(kept.slice(0, count - sum(map(len, found))))
        if sum(map(len, found)) >= count:
            break
    rows = pa.concat_tables(found, promote_options="permissive") if found else pa.table({})
    return Chosen(rows, looked_at, tuple(unclear))


def with_inputs(rows: pa.Table, job: Job) -> pa.Table:
    """Return rows of a job of images with a column `image` added: the bytes of the file that `uri` names.

    The bytes are null if the file is gone. Rows that have such a column already, and rows of other jobs, stay as they
    are.
    """
    if not job.source.holds_images or "uri" not in rows.column_names or "image" in rows.column_names:
        return rows

    def read(uri: str | None) -> bytes | None:
        try:
            return Location(uri).read_bytes() if uri else None
        except (OSError, OvernightError):
            return None

    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        files = list(pool.map(read, rows["uri"].to_pylist()))
    return rows.add_column(min(1, rows.num_columns), "image", pa.array(files, pa.large_binary()))


def _condition(where: str) -> Expression:
    try:
        return Expression(where)
    except ValueError as error:
        raise JobError(f"--where: {error}") from None


def _holds(condition: Expression, table: pa.Table) -> tuple[pa.Table, dict[int, RowError]]:
    try:
        holds, failed = condition.holds(table, "--where", "plan")
    except ContractError as error:
        raise JobError(str(error)) from None
    except RowError as error:
        return table.slice(0, 0), {0: error}
    return table.filter(pa.array(holds)), failed
