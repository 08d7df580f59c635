"""Compare two results of a job by `row_id`: find rows that only one has, and columns whose values differ.

Both results are read twice, a few rows at a time: first for a hash of each value, then for the examples. Memory holds
the row ids, and 8 bytes per value. A column that has another type in the other result is compared as text. The column
of the partition is never compared, and `uri` only within the same partition. Rows of two partitions may be other rows
under the same ids, so the statistics of their columns are compared, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.flows.ledger.results import Result
from overnight.flows.preview_cells import values
from overnight.flows.report.columns import Column, compare_columns
from overnight.tasks.errors import OvernightError
from overnight.tasks.rows.agreement import value_hashes

EXAMPLES = 3


@dataclass(frozen=True)
class OnlyIn:
    """Rows that only one result has: their number, and a few row ids."""

    rows: int
    quarantined_in_other: int
    examples: list[str]


@dataclass(frozen=True)
class Changed:
    """A column whose values differ, with the number of rows in which they do.

    Each example is a tuple (row_id, value in A, value in B).
    """

    rows: int
    examples: list[tuple[str, Any, Any]]


@dataclass(frozen=True)
class Differences:
    """The differences between the results `a` and `b`. Rows with the same `row_id` are compared.

    `in_both` rows are in both results, and `changed` of these differ. `columns` has each changed column by its name.
    `statistics` has shares, means, nulls and drift of the columns of other partitions, or of results without equal ids.
    """

    a: Result
    b: Result
    in_both: int
    changed: int
    only_a: OnlyIn
    only_b: OnlyIn
    columns: Mapping[str, Changed]
    columns_only_a: list[str]
    columns_only_b: list[str]
    statistics: list[Column]

    def __bool__(self) -> bool:
        rows = self.changed or self.only_a.rows or self.only_b.rows
        return bool(rows or self.columns_only_a or self.columns_only_b)


def compare(a: Result, b: Result) -> Differences:
    schema_a, schema_b = _schema(a), _schema(b)
    omissions = set(a.job.sink.partition_column.split(","))
    if a.receipt["partition"] != b.receipt["partition"]:
        omissions.add("uri")
    names_a = [name for name in schema_a.names if name not in omissions]
    names_b = [name for name in schema_b.names if name not in omissions]
    common = [name for name in names_a if name in names_b and name != "row_id"]
    as_text = {name for name in common if schema_a.field(name).type != schema_b.field(name).type}
    ids_a, hashes_a = _hashes(a, common, as_text)
    ids_b, hashes_b = _hashes(b, common, as_text)
    positions = pc.index_in(ids_a, value_set=ids_b)
    is_in_both = positions.is_valid().to_numpy(zero_copy_only=False)
    ids = ids_a.filter(pa.array(is_in_both))
    differ = hashes_a[is_in_both] != hashes_b[positions.drop_null().to_numpy()]
    return Differences(
        a=a,
        b=b,
        in_both=len(ids),
        changed=int(differ.any(axis=1).sum()),
        only_a=_only(ids_a.filter(positions.is_null()), b),
        only_b=_only(ids_b.filter(pc.invert(pc.is_in(ids_b, value_set=ids_a))), a),
        columns=_changed_columns(a, b, common, ids, differ),
        columns_only_a=sorted(set(names_a) - set(names_b)),
        columns_only_b=sorted(set(names_b) - set(names_a)),
        statistics=_statistics(a, b) if "uri" in omissions or not len(ids) else [],
    )


def _statistics(a: Result, b: Result) -> list[Column]:
    """Return the columns of B beside those of A, from the receipts, with drift by the rules of the job's checks."""
    return compare_columns(b.receipt, [a.receipt], b.job.checks)


def _changed_columns(a: Result, b: Result, names: list[str], ids: pa.Array, differ: np.ndarray) -> dict[str, Changed]:
    """Return each column with a difference. `differ` has a line for each of the `ids`, and a column for each name."""
    row_ids: dict[str, list[str]] = {}
    for number, name in enumerate(names):
        if differ[:, number].any():
            row_ids[name] = ids.filter(pa.array(differ[:, number])).to_pylist()
    examples = set(chain.from_iterable(column[:EXAMPLES] for column in row_ids.values()))
    rows_a, rows_b = _rows(a, examples), _rows(b, examples)
    columns = {}
    for name, column in row_ids.items():
        values_of_both = [(row_id, rows_a[row_id][name], rows_b[row_id][name]) for row_id in column[:EXAMPLES]]
        columns[name] = Changed(len(column), values_of_both)
    return columns


def _schema(result: Result) -> pa.Schema:
    for rows in result.batches():
        return result.with_images(rows[:0]).schema
    return pa.schema([("row_id", pa.string())])


def _hashes(result: Result, columns: list[str], as_text: Iterable[str]) -> tuple[pa.Array, np.ndarray]:
    """Return the row ids, and a matrix of uint64 with a hash for each value of these columns."""
    ids, parts = [pa.array([], pa.string())], [np.empty((0, len(columns)), np.uint64)]
    for rows in result.batches():
        if not len(rows):
            continue
        for name in ("row_id", *columns):
            if name not in rows.column_names:
                raise OvernightError(f"{result.name}: expected the column {name} in each file, found one without it.")
        table = result.with_images(rows).select(["row_id", *columns])
        ids += table["row_id"].cast(pa.string()).chunks
        parts.append(value_hashes(table, columns, as_text))
    return pa.concat_arrays(ids), np.concatenate(parts)


def _rows(result: Result, row_ids: set[str]) -> dict[str, dict[str, Any]]:
    """Return the values of the rows with these ids, for display."""
    rows: dict[str, dict[str, Any]] = {}
    if not row_ids:
        return rows
    ids = pa.array(sorted(row_ids), pa.string())
    for table in result.batches():
        selection = table.filter(pc.is_in(table["row_id"].cast(pa.string()), value_set=ids)) if len(table) else table
        if len(selection):
            selection = result.with_images(selection)
            columns = {name: values(selection[name]) for name in selection.column_names}
            for number, row_id in enumerate(selection["row_id"].cast(pa.string()).to_pylist()):
                rows[row_id] = {name: column[number] for name, column in columns.items()}
    return rows


def _only(ids: pa.Array, other: Result) -> OnlyIn:
    count = 0
    if len(ids) and other.receipt["rows_quarantined"]:
        count = pc.sum(pc.is_in(ids, value_set=other.quarantine()["row_id"].cast(pa.string()))).as_py()
    return OnlyIn(len(ids), count, ids[:EXAMPLES].to_pylist())
