"""Add or replace columns, each computed from its row. The expression determines the type."""

from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows.blocks import IDENTITY
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
        return [name for expression in self.columns.values() for name in Expression(expression).columns]

    def column_effect(self) -> ColumnEffect:
        read: list[str] = []
        for place, expression in enumerate(self.columns.values()):
            derived = {name.lower() for name in list(self.columns)[:place]}
            read += [name for name in Expression(expression).required if name.lower() not in derived]
        return ColumnEffect(reads_in_sql=read, makes=list(self.columns))

    def build(self) -> Work:
        expressions = {name: Expression(expression) for name, expression in self.columns.items()}

        def derive(table: pa.Table) -> Outcome:
            derived: dict[str, pa.Array] = {}
            failed: dict[int, Exception] = {}
            for name, expression in expressions.items():
                derived[name], fails = expression.evaluate(table, f"derive_columns: {name}", "preprocess")
                failed = fails | failed  # a row's first error is the one that is reported
                place = table.schema.get_field_index(name)
                table = (
                    table.append_column(name, derived[name])
                    if place < 0
                    else table.set_column(place, name, derived[name])
                )
            return Outcome(derived, failed=failed)

        return derive
