"""Three steps on whole columns: `select_columns`, `drop_columns` and `rename_columns`.

They change no value and drop no row. `row_id` and `uri`, which name rows, always stay under their names.
"""

from typing import Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field, field_validator

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.input_columns import ColumnsStep
from overnight.tasks.rows.blocks import IDENTITY
from overnight.tasks.rows.column_effect import ColumnEffect, in_use
from overnight.tasks.rows.result import Outcome


def _without_identity(columns: list[str]) -> list[str]:
    for name in columns:
        if name in IDENTITY:
            raise ValueError(f"{name!r} names rows: it cannot be dropped or renamed. Leave it out.")
    return columns


class SelectColumns(ColumnsStep):
    """Keeps the columns that are named, in this order, and drops the others."""

    kind: Literal["select_columns"] = "select_columns"
    columns: Annotated[list[str], Field(min_length=1, description="The columns to keep, in this order.")]

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect(self.columns, keeps=self.columns)

    def outcome(self, table: pa.Table) -> Outcome:
        return Outcome(order=[name for name in dict.fromkeys(self.columns) if name not in IDENTITY])


class DropColumns(ColumnsStep):
    """Drops the columns that are named."""

    kind: Literal["drop_columns"] = "drop_columns"
    columns: Annotated[
        list[str], Field(min_length=1, description="The columns to drop."), AfterValidator(_without_identity)
    ]

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect(self.columns, removes=self.columns)

    def outcome(self, table: pa.Table) -> Outcome:
        exclusions = {*self.columns, *IDENTITY}
        return Outcome(order=[name for name in table.column_names if name not in exclusions])


class RenameColumns(ColumnsStep):
    """Gives columns other names; each stays in its place."""

    kind: Literal["rename_columns"] = "rename_columns"
    columns: Annotated[
        dict[str, str], Field(min_length=1, description="New names by old ones, for example `{label: species}`.")
    ]

    @field_validator("columns")
    @classmethod
    def _names_are_new(cls, columns: dict[str, str]) -> dict[str, str]:
        _without_identity([*columns, *columns.values()])
        for new in columns.values():
            if not new or new.startswith("__"):
                raise ValueError(f"{new!r} cannot be the name of a column. Choose another name.")
            if list(columns.values()).count(new) > 1:
                raise ValueError(f"two columns are renamed to {new}. Choose another name for one of them.")
        return columns

    def column_effect(self) -> ColumnEffect:
        old, new = list(self.columns), list(self.columns.values())
        return ColumnEffect(old, unused=self._added(), makes=new, removes=old)

    def outcome(self, table: pa.Table) -> Outcome:
        for name in self._added():
            if name in table.column_names:
                raise ContractError(f"rename_columns: {in_use(name)}.", "preprocess")
        names = [name for name in table.column_names if name not in IDENTITY]
        columns = {new: table[old] for old, new in self.columns.items()}
        return Outcome(columns, order=[self.columns.get(name, name) for name in names])

    def _added(self) -> list[str]:
        """Return the new names, without the names that change places with each other."""
        return [name for name in self.columns.values() if name not in self.columns]
