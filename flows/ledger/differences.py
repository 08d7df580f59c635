"""Compare two results of a job by `row_id`: find rows that only one has, and columns whose values differ.

Both results are read twice, a few rows at a time: first for a hash of each value, then for the examples. Memory holds
the row ids, and 8 bytes per value. DuckDB computes the hashes. A column that has another type in the other result is
compared as text. The column of the partition is never compared, and `uri` only within the same partition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.flows.ledger.results import Result
from overnight.flows.preview_cells import values
from overnight.tasks.errors import OvernightError
from overnight.tasks.rows.expressions.engine import database

EXAMPLES = 3


@dataclass(frozen=True)
class OnlyIn:
    """Rows that only one result has: their number, and a few row ids.

    `quarantined_in_other` is the number of these rows that the other result quarantined.
    """

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

    `in_both` is the number of rows that both results have, and `changed` is the number of these rows that differ.
    `columns` maps the name of each changed column to its differences. `columns_only_a` are the names of columns that
    only `a` has.
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

    def __bool__(self) -> bool:
        rows = self.changed or self.only_a.rows or self.only_b.rows
        return bool(rows or self.columns_only_a or self.columns_only_b)


def compare(a: Result, b: Result) -> Differences:
    """Return the differences of two results.

    Raise `FileNotFoundError` if a publish replaces a result while it is read. Raise `OvernightError` if a file of a
    result lacks a column that its other files have.
    """
    schemas = [_schema(one) for one in (a, b)]
    ignored = {a.job.sink.partition_column}
    if a.receipt["partition"] != b.receipt["partition"]:
        ignored.add("uri")
    names = [[name for name in schema.names if name not in ignored] for schema in schemas]
    common = [name for name in names[0] if name in names[1] and name != "row_id"]
    as_text = {name for name in common if schemas[0].field(name).type != schemas[1].field(name).type}
    ids_a, hashes_a = _hashes(a, common, as_text)
    ids_b, hashes_b = _hashes(b, common, as_text)
    place = pc.index_in(ids_a, value_set=ids_b)
    is_there = place.is_valid().to_numpy(zero_copy_only=False)
    both = ids_a.filter(pa.array(is_there))
    differ = hashes_a[is_there] != hashes_b[place.drop_null().to_numpy()]
    examples = {name: both.filter(pa.array(differ[:, at])).to_pylist() for at, name in enumerate(common)}
    wanted = {row_id for found in examples.values() for row_id in found[:EXAMPLES]}
    rows_a, rows_b = _rows(a, wanted), _rows(b, wanted)
    return Differences(
        a=a,
        b=b,
        in_both=len(both),
        changed=int(differ.any(axis=1).sum()),
        only_a=_only(ids_a.filter(place.is_null()), b),
        only_b=_only(ids_b.filter(pc.invert(pc.is_in(ids_b, value_set=ids_a))), a),
        columns={
            name: Changed(len(found), [(each, rows_a[each][name], rows_b[each][name]) for each in found[:EXAMPLES]])
            for name, found in examples.items()
            if found
        },
        columns_only_a=[name for name in names[0] if name not in names[1]],
        columns_only_b=[name for name in names[1] if name not in names[0]],
    )


def _schema(result: Result) -> pa.Schema:
    for rows in result.batches():
        return result.with_images(rows[:0]).schema
    return pa.schema([("row_id", pa.string())])


def _hashes(result: Result, columns: list[str], as_text: Iterable[str]) -> tuple[pa.Array, np.ndarray]:
    """Return the row ids, and a matrix of uint64 with a hash for each value of these columns."""
    terms = [f"hash({_quoted(name)}{'::VARCHAR' if name in as_text else ''})" for name in columns]
    ids, found = [pa.array([], pa.string())], [np.empty((0, len(columns)), np.uint64)]
    for rows in result.batches():
        if not len(rows):
            continue
        if lacking := [name for name in ("row_id", *columns) if name not in rows.column_names]:
            raise OvernightError(f"{result.name}: expected the column {lacking[0]} in each file, found one without it.")
        table = result.with_images(rows).select(["row_id", *columns])
        ids += table["row_id"].cast(pa.string()).chunks
        if columns:
            with database().cursor() as cursor:
                cursor.register("__rows", table)
                hashes = cursor.execute(f"SELECT {', '.join(terms)} FROM __rows").fetchnumpy()
            found.append(np.column_stack([np.asarray(each, np.uint64) for each in hashes.values()]))
        else:
            found.append(np.empty((len(table), 0), np.uint64))
    return pa.concat_arrays(ids), np.concatenate(found)


def _rows(result: Result, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Return the values of the rows with these ids, for display."""
    found: dict[str, dict[str, Any]] = {}
    ids = pa.array(sorted(wanted), pa.string())
    for rows in result.batches() if wanted else ():
        if len(rows) and len(taken := rows.filter(pc.is_in(rows["row_id"].cast(pa.string()), value_set=ids))):
            taken = result.with_images(taken)
            columns = {name: values(taken[name]) for name in taken.column_names}
            for at, row_id in enumerate(taken["row_id"].cast(pa.string()).to_pylist()):
                found[row_id] = {name: column[at] for name, column in columns.items()}
    return found


def _only(ids: pa.Array, other: Result) -> OnlyIn:
    quarantined = 0
    if len(ids) and other.receipt["rows_quarantined"]:
        quarantined = pc.sum(pc.is_in(ids, value_set=other.quarantine()["row_id"].cast(pa.string()))).as_py()
    return OnlyIn(len(ids), quarantined, ids[:EXAMPLES].to_pylist())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
