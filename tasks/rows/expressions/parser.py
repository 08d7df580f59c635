"""The expressions of `filter_rows`, `derive_columns` and a model's `where`: one DuckDB SQL expression over a row.

Inputs are converted: whole numbers to BIGINT, floating-point numbers to DOUBLE. Decimals and times keep their types;
times are computed in UTC. Results are BIGINT, DOUBLE and other types that Arrow represents exactly. A result is DECIMAL
only if a column is, or if the expression has a cast to it.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.config.memory_bound import bounded, shortage
from overnight.tasks.errors import ContractError, RowError, did_you_mean
from overnight.tasks.rows.arrow_types import is_bytes, value_type
from overnight.tasks.rows.blocks import scatter
from overnight.tasks.rows.expressions.engine import database
from overnight.tasks.rows.expressions.syntax import HABITS, names, shown
from overnight.tasks.rows.tensors import TENSOR

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType

WHOLE = {"tinyint", "smallint", "integer", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"}
NESTED = {"list", "array", "struct", "tuple", "map"}
INEXACT = {"interval", "time with time zone", "bit", "bignum", "variant", "union", "geometry"}
IS_FAILED = "TRY({} IS NULL) IS NULL"


class Expression:
    """A parsed expression of DuckDB's SQL over the columns of one row.

    `columns` are the names in it, which include possible parameters of lambdas. The constructor raises `ValueError` if
    the expression is refused, for example because it has a subquery.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.columns, self._parameters = names(source)
        self._makes_decimals = bool(re.search(r"(::|\bas\b)\s*(dec|decimal|numeric)\b", source, re.IGNORECASE))

    @property
    def required(self) -> list[str]:
        """Return the columns that must exist, in any case: all `columns` except possible parameters of lambdas."""
        return [name for name in self.columns if name not in self._parameters]

    def fits(self, table: pa.Table) -> bool:
        """Return True if the table has each column that the expression needs."""
        try:
            self._inputs(table.column_names, "", "infer")
        except ContractError:
            return False
        return True

    def holds(self, table: pa.Table, what: str, stage: str) -> tuple[np.ndarray, dict[int, RowError]]:
        """Return a bool per row, True if it meets the condition, and the errors of `evaluate`. Null is False.

        Raise `ContractError` for values that are not true or false.
        """
        values, errors = self.evaluate(table, what, stage)
        if not types.is_boolean(values.type) and not types.is_null(values.type):
            raise ContractError(
                f"{what}: {self.source!r}: expected true or false, found {values.type}. "
                "Write a condition, for example x <> 0.",
                stage,
            )
        return pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False), errors

    def evaluate(self, table: pa.Table, what: str, stage: str) -> tuple[pa.Array, dict[int, RowError]]:
        """Return one value per row, null for a failed row, and row number -> error. Messages begin with `what`.

        Raise `ContractError` for missing or incompatible columns, `RowError` if the only or an unknown row fails.
        """
        label = f"{what}: {shown(self.source)}"
        try:
            return self._computed(table, label, stage), {}
        except RowError as error:
            if len(table) == 1 or isinstance(error.__cause__, MemoryError):
                raise
        fails = self._computed(table, label, stage, IS_FAILED).to_numpy(zero_copy_only=False)
        values = self._computed(table.filter(pa.array(~fails)), label, stage)
        errors: dict[int, RowError] = {}
        for row in np.flatnonzero(fails).tolist():
            try:
                self._computed(table[row : row + 1], label, stage)
            except RowError as error:
                errors[row] = error
        return scatter(values, np.flatnonzero(~fails), len(table)), errors

    def _computed(self, table: pa.Table, label: str, stage: str, outer: str = "{}") -> pa.Array:
        """Return the values of the rows, inserted into the expression `outer`, computed together."""
        import duckdb

        try:
            with bounded(table.nbytes), database().cursor() as cursor:
                column = self._query(cursor, table, label, stage, outer).to_arrow_table()["value"]
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            # its memory would count for the next rows, but not for the bound
            database.cache_clear()
            cause = error if isinstance(error, MemoryError) else MemoryError(_message(error))
            raise RowError(f"{label}: {shortage(cause)}") from cause
        except (duckdb.Error, pa.ArrowInvalid) as error:
            if isinstance(error, duckdb.InternalException | duckdb.FatalException):
                database.cache_clear()  # DuckDB executes nothing more on this connection
            raise RowError(f"{label}: {_message(error)}") from error
        return column.combine_chunks()

    def _query(
        self, cursor: "DuckDBPyConnection", table: pa.Table, label: str, stage: str, outer: str
    ) -> "DuckDBPyRelation":
        """Return the query to compute; it depends on the columns' types and not on their values."""
        import duckdb

        try:
            inputs = {name: _input(table[name], name) for name in self._inputs(table.column_names, label, stage)}
            rows = pa.table(inputs or {"__none": pa.nulls(len(table))})
            cursor.register("__rows", rows)
            value = f"(\n{self.source}\n)"
            kind = self._arrow_kind(cursor.sql(f"SELECT {value} AS value FROM __rows").types[0], rows.schema)
            if kind:
                value = f"CAST({value} AS {kind})"
            return cursor.sql(f"SELECT {outer.format(value)} AS value FROM __rows")
        except (TypeError, pa.ArrowNotImplementedError, duckdb.Error) as error:
            raise ContractError(f"{label}: {_message(error)}", stage) from error

    def _inputs(self, columns: list[str], label: str, stage: str) -> list[str]:
        """Return those of a table's columns that the expression names.

        SQL ignores the case of ASCII letters. So two names that differ only in case raise `ContractError`.
        """
        inputs = []
        for name in self.columns:
            matches = [column for column in columns if column.encode().lower() == name.encode().lower()]
            if len(matches) > 1:
                raise ContractError(
                    f"{label}: expected one column {name!r}, found {' and '.join(matches)}, which SQL does not "
                    "distinguish. Rename one of them before.",
                    stage,
                )
            if not matches and name not in self._parameters:
                habit = f" {name}: {HABITS[name]}." if name in HABITS else ""
                if f'"{name}"' in self.source:
                    habit = f" For a text write '{name}': double quotes are for names."
                raise ContractError(
                    f"{label} needs a column {name!r}{did_you_mean(name, columns)}; "
                    f"the columns are {', '.join(columns)}.{habit}",
                    stage,
                )
            inputs += matches
        return inputs

    def _arrow_kind(self, kind: "DuckDBPyType", schema: pa.Schema) -> str | None:
        """Return the type to which values of `kind` are cast before Arrow gets them; None to keep the type."""
        for inner in _inner_kinds(kind):
            if inner.id in INEXACT:
                raise TypeError(
                    f"expected values that a column can hold, found {inner}. Convert them to numbers or text."
                )
        if kind.id in WHOLE:
            return "BIGINT"
        if kind.id == "float":
            return "DOUBLE"
        if kind.id == "decimal" and not self._makes_decimals and not any(map(types.is_decimal, schema.types)):
            return "DOUBLE"  # from a literal such as 2.5
        return "VARCHAR" if kind.id == "enum" else None


def _input(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column in an expression's types. Raise `TypeError` for bytes and arrays, and `pa.ArrowInvalid`."""
    kind = value_type(column.type)
    if is_bytes(kind) or kind == TENSOR:
        content = "arrays" if kind == TENSOR else "bytes"
        raise TypeError(f"column {name} holds {content}, which no expression reads. Use a python step.")
    if types.is_integer(kind):
        kind = pa.int64()
    if types.is_floating(kind):
        kind = pa.float64()
    return column.cast(kind)


def _inner_kinds(kind: "DuckDBPyType") -> Iterator["DuckDBPyType"]:
    """Yield a type, and the types of its elements or fields."""
    yield kind
    if kind.id in NESTED:
        for _, child in kind.children:
            if not isinstance(child, int | list):  # the length of an array
                yield from _inner_kinds(child)


def _message(error: Exception) -> str:
    """Return the first line of DuckDB's message, without the kind of error and its advice on settings."""
    line = str(error).partition("\n")[0]
    message = re.sub(r", or SET .*", ".", line.partition(" Error: ")[2] or line)
    if re.search(r"'\+\(.*(VARCHAR|STRING)", message):
        message += " SQL joins text with ||."
    return message
