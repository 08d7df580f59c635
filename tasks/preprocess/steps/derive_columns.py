"""Add or replace columns, each computed from its row. The expression determines the type."""

from itertools import chain
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows.blocks import IDENTITY, with_column
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.result import Outcome, Work


class DeriveColumns(PreprocessStep):
    """Computes columns in the given order; later expressions can use the earlier columns."""

    kind: Literal["derive_columns"] = "derive_columns"
    columns: Annotated[
        dict[str, AdjustableText],
        Field(min_length=1, description="Expressions in DuckDB's SQL by column, for example `{total: price * count}`."),
    ]

    @field_validator("columns")
    @classmethod
    def _parse(cls, columns: dict[str, str]) -> dict[str, str]:
        for name, expression in columns.items():
            if name in IDENTITY or name.startswith("__") or not name:
                raise ValueError(f"{name!r} cannot be a derived column: it names rows. Choose another name.")
            try:
                Expression(expression)
            except ValueError as error:
                raise ValueError(f"column {name}: {error}") from None
        return columns

    def inputs(self) -> list[str]:
        expressions = map(Expression, self.columns.values())
        return list(chain.from_iterable(expression.columns for expression in expressions))

    def column_effect(self) -> ColumnEffect:
        inputs: list[str] = []
        earlier: set[str] = set()
        for column, expression in self.columns.items():
            inputs += [name for name in Expression(expression).required if name.lower() not in earlier]
            earlier.add(column.lower())
        return ColumnEffect(reads_in_sql=inputs, makes=list(self.columns))

    def build(self) -> Work:
        expressions = {name: Expression(expression) for name, expression in self.columns.items()}

        def derive(table: pa.Table) -> Outcome:
            columns: dict[str, pa.Array] = {}
            first_errors: dict[int, Exception] = {}
            for name, expression in expressions.items():
                columns[name], errors = expression.evaluate(table, f"derive_columns: {name}", "preprocess")
                first_errors = errors | first_errors
                table = with_column(table, name, columns[name])
            return Outcome(columns, failed=first_errors)

        return derive
