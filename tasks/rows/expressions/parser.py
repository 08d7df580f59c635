"""The expressions of `filter_rows`, `derive_columns` and a model's `where`: one DuckDB SQL expression over a row.

Each is parsed when the job is read. Then aggregates, windows, subqueries, tables and functions whose results vary
between calls are refused. Inputs are converted: whole numbers to BIGINT, floating-point numbers to DOUBLE. Decimals and
times keep their types; times are computed in UTC. Results are BIGINT, DOUBLE and other types that Arrow represents
exactly. A result is DECIMAL only if a column is, or if the expression has a cast to it.

This file does not use jobs.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.config.memory_bound import bounded, shortage
from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows.blocks import scatter
from overnight.tasks.rows.expressions.engine import database
from overnight.tasks.rows.expressions.syntax import HABITS, names, nearest, shown
from overnight.tasks.rows.tensors import TENSOR

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType

WHOLE = {"tinyint", "smallint", "integer", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"}
NESTED = {"list", "array", "struct", "tuple", "map"}
INEXACT = {"interval", "time with time zone", "bit", "bignum", "variant", "union", "geometry"}


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
        """Return the columns that must exist: all `columns` except possible parameters of lambdas.

        Upper and lower case of their names may differ from the table's.
        """
        return [name for name in self.columns if name not in self._parameters]

    def holds(self, table: pa.Table, what: str, stage: str) -> tuple[np.ndarray, dict[int, RowError]]:
        """Return a bool per row, True if it meets the condition, and row number -> error of the failed rows.

        Null is False. `what` names the expression at the start of messages. Raise `ContractError`, with this stage, for
        a missing column, for incompatible types, and for values that are not true or false. Raise `RowError` if the
        table's only row fails, or if it is unknown which row fails.
        """
        values, failed = self.evaluate(table, what, stage)
        if not types.is_boolean(values.type) and not types.is_null(values.type):
            raise ContractError(
                f"{what}: {self.source!r}: expected true or false, found {values.type}. "
                "Write a condition, for example x <> 0.",
                stage,
            )
        return pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False), failed

    def evaluate(self, table: pa.Table, what: str, stage: str) -> tuple[pa.Array, dict[int, RowError]]:
        """Return one value per row, null for a failed row, and row number -> error of the failed rows.

        `what` names the expression at the start of messages. Raise `ContractError`, with this stage, for a missing
        column and for incompatible types. Raise `RowError` if the table's only row fails, or if it is unknown which row
        fails.
        """
        said = f"{what}: {shown(self.source)}"
        try:
            return self._computed(table, said, stage), {}
        except RowError as error:
            if len(table) == 1 or isinstance(error.__cause__, MemoryError):
                raise
        fails = self._computed(table, said, stage, "TRY({} IS NULL) IS NULL").to_numpy(zero_copy_only=False)
        values = self._computed(table.filter(pa.array(~fails)), said, stage)
        failed: dict[int, RowError] = {}
        for row in np.flatnonzero(fails).tolist():
            try:
                self._computed(table[row : row + 1], said, stage)
            except RowError as error:
                failed[row] = error
        return scatter(values, np.flatnonzero(~fails), len(table)), failed

    def _computed(self, table: pa.Table, said: str, stage: str, of: str = "{}") -> pa.Array:
        """Return the values of the rows, or the expression `of` them, computed together."""
        import duckdb

        try:
            with bounded(table.nbytes), database().cursor() as cursor:
                made = self._bound(cursor, table, said, stage, of).to_arrow_table()
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            database.cache_clear()  # its memory would count for the next rows, but not for the bound
            lack = error if isinstance(error, MemoryError) else MemoryError(_told(error))
            raise RowError(f"{said}: {shortage(lack)}") from lack
        except (duckdb.Error, pa.ArrowInvalid) as error:
            if isinstance(error, duckdb.InternalException | duckdb.FatalException):
                database.cache_clear()  # DuckDB executes nothing more on this connection
            raise RowError(f"{said}: {_told(error)}") from error
        return pa.concat_arrays(made["value"].chunks) if len(made) else pa.array([], made["value"].type)

    def _bound(
        self, cursor: "DuckDBPyConnection", table: pa.Table, said: str, stage: str, of: str
    ) -> "DuckDBPyRelation":
        """Return the query to compute; it depends on the columns' types and not on their values."""
        import duckdb

        query = "SELECT {} AS value FROM __rows"
        try:
            given = {name: _given(table[name], name) for name in self._found(table.column_names, said, stage)}
            rows = pa.table(given or {"__none": pa.nulls(len(table))})
            cursor.register("__rows", rows)
            found = cursor.sql(query.format(value := f"(\n{self.source}\n)"))
            if as_type := self._result(found.types[0], rows.schema):
                value = f"CAST({value} AS {as_type})"
            return cursor.sql(query.format(of.format(value))) if as_type or of != "{}" else found
        except (TypeError, pa.ArrowNotImplementedError, duckdb.Error) as error:
            raise ContractError(f"{said}: {_told(error)}", stage) from error

    def fits(self, table: pa.Table) -> bool:
        """Return True if the table has each column that the expression needs.

        The case of names is ignored; two names that differ only in case do not fit.
        """
        try:
            return bool(list(self._found(table.column_names, "", "infer")) or True)
        except ContractError:
            return False

    def _found(self, known: list[str], said: str, stage: str) -> Iterator[str]:
        """Yield the table's columns that the expression names; case is ignored."""
        for name in self.columns:
            match [each for each in known if _folded(each) == _folded(name)]:
                case [found]:
                    yield found
                case [] if name not in self._parameters:
                    habit = f" {name}: {HABITS[name]}." if name in HABITS else ""
                    if f'"{name}"' in self.source:
                        habit = f" For a text write '{name}': double quotes are for names."
                    raise ContractError(
                        f"{said} needs a column {name!r}{nearest(name, known)}; "
                        f"the columns are {', '.join(known)}.{habit}",
                        stage,
                    )
                case [_, _, *_] as several:
                    raise ContractError(
                        f"{said}: expected one column {name!r}, found {' and '.join(several)}, which SQL does not "
                        "distinguish. Rename one of them before.",
                        stage,
                    )

    def _result(self, kind: "DuckDBPyType", given: pa.Schema) -> str | None:
        """Return the type to which values of `kind` are cast before Arrow gets them; None to keep the type."""
        if inexact := next((str(each) for each in _inside(kind) if each.id in INEXACT), None):
            raise TypeError(
                f"expected values that a column can hold, found {inexact}. Convert them to numbers or text."
            )
        if kind.id in WHOLE:
            return "BIGINT"
        if kind.id == "float":
            return "DOUBLE"
        if kind.id == "decimal" and not self._makes_decimals and not any(map(types.is_decimal, given.types)):
            return "DOUBLE"  # from a literal such as 2.5
        return "VARCHAR" if kind.id == "enum" else None


def _given(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column in an expression's types. Raise `TypeError` for bytes and arrays, and `pa.ArrowInvalid`."""
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    if is_bytes or kind == TENSOR:
        raise TypeError(
            f"column {name} holds {'bytes' if is_bytes else 'arrays'}, which no expression reads. Use a python step."
        )
    if types.is_integer(kind):
        kind = pa.int64()
    if types.is_floating(kind):
        kind = pa.float64()
    return column.cast(kind)


def _inside(kind: "DuckDBPyType") -> Iterator["DuckDBPyType"]:
    """Yield a type, and the types of its elements or fields."""
    yield kind
    for _, child in kind.children if kind.id in NESTED else ():
        if not isinstance(child, int | list):  # the length of an array
            yield from _inside(child)


def _told(error: Exception) -> str:
    """Return the first line of DuckDB's message, without the kind of error and its advice on settings."""
    line = str(error).partition("\n")[0]
    message = re.sub(r", or SET .*", ".", line.partition(" Error: ")[2] or line)
    return f"{message} SQL joins text with ||." if re.search(r"'\+\(.*(VARCHAR|STRING)", message) else message


def _folded(name: str) -> bytes:
    """Return a name as SQL compares names: ASCII letters in one case."""
    return name.encode().lower()
