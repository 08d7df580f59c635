"""Drop duplicates: of rows with equal values, or with nearly the same text or vector, the first in the manifest stays.

The others count as filtered. A row without a value to compare stays. `build` compares the rows of one table. A run
compares the rows of the whole partition: before the stream (`tasks/preprocess/decided_duplicates.py`), or after the
last model (`tasks/write/merge/drop_duplicates.py`).
"""

from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from overnight.tasks.config.settings import Settings
from overnight.tasks.duplicates.exact import Equal
from overnight.tasks.duplicates.near import Near
from overnight.tasks.duplicates.rule import Rule, duplicates_in
from overnight.tasks.preprocess.input_columns import require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.result import Outcome, Work


class NearSettings(Settings):
    """Drops rows that are similar to an earlier row that stays."""

    column: Annotated[
        str, Field(min_length=1, description="A column of texts, compared by MinHash, or of vectors, by their cosine.")
    ]
    threshold: Annotated[
        float,
        Field(
            gt=0, le=1, description="Rows at least as similar as this are duplicates, for example 0.98 for embeddings."
        ),
    ]


class Deduplicate(PreprocessStep):
    """Drops rows that repeat an earlier row of the partition; a dropped row is counted as filtered."""

    kind: Literal["deduplicate"] = "deduplicate"
    columns: Annotated[
        list[str] | None,
        Field(min_length=1, description="Rows with equal values in all of these columns are duplicates."),
    ] = None
    near: Annotated[
        NearSettings | None,
        Field(description="Rows that are similar in one column are duplicates; instead of `columns`."),
    ] = None

    @model_validator(mode="after")
    def _has_one_rule(self) -> "Deduplicate":
        if (self.columns is None) == (self.near is None):
            settings = "neither" if self.near is None else "both"
            raise ValueError(
                f"expected either columns or near, found {settings}. Write columns: [url] for rows that are equal, or "
                "near: {column: text, threshold: 0.8} for similar ones"
            )
        return self

    @property
    def rule(self) -> Rule:
        """Return the rule that decides which rows are duplicates of each other."""
        if self.near:
            return Near(self.near.column, self.near.threshold)
        return Equal(tuple(self.columns or ()))

    def inputs(self) -> list[str]:
        return list(self.rule.columns)

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect(self.rule.columns)

    def build(self) -> Work:
        rule = self.rule

        def first_of_each(table: pa.Table) -> Outcome:
            require_columns(table, rule.columns, self.kind)
            return Outcome(keep=~duplicates_in(table, rule))

        return first_of_each
