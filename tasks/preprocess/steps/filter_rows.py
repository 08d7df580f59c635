"""Keep the rows whose condition is True. A null condition does not keep its row."""

from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.result import Outcome, Work


class FilterRows(PreprocessStep):
    """Drops rows by a condition over their columns; a dropped row is counted as filtered."""

    kind: Literal["filter_rows"] = "filter_rows"
    expression: Annotated[
        AdjustableText,
        Field(description="A condition in DuckDB's SQL, for example `price > 0 and country in ('DE', 'FR')`."),
    ]

    @field_validator("expression")
    @classmethod
    def _parses(cls, expression: str) -> str:
        Expression(expression)
        return expression

    def inputs(self) -> list[str]:
        return list(Expression(self.expression).columns)

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect(reads_in_sql=Expression(self.expression).required)

    def build(self) -> Work:
        condition = Expression(self.expression)

        def keep(table: pa.Table) -> Outcome:
            holds, errors = condition.holds(table, "filter_rows", "preprocess")
            return Outcome(keep=holds, failed=errors)

        return keep
