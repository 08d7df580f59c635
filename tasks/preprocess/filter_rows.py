"""Keeps the rows whose condition is True. A null condition does not keep its row."""

from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from tasks.errors import ContractError
from tasks.preprocess.expression import Expression
from tasks.preprocess.step import PreprocessStep
from tasks.rows import Outcome, Work


class FilterRows(PreprocessStep):
    """Drops rows by a condition over their columns; a dropped row is counted as filtered."""

    kind: Literal["filter_rows"] = "filter_rows"
    expression: Annotated[str, Field(description="A condition, for example: price > 0 and country in ['DE', 'FR'].")]

    @field_validator("expression")
    @classmethod
    def _parses(cls, expression: str) -> str:
        Expression(expression)
        return expression

    def build(self) -> Work:
        condition = Expression(self.expression)

        def keep(table: pa.Table) -> Outcome:
            values = condition.evaluate(table, "filter_rows")
            if not pa.types.is_boolean(values.type) and not pa.types.is_null(values.type):
                raise ContractError(
                    f"filter_rows: {self.expression!r}: expected true or false, found {values.type}. "
                    "Write a condition, for example x != 0.",
                    "preprocess",
                )
            return Outcome(keep=pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False))

        return keep
