"""A list column to rows: one row for each entry of the lists.

Columns in: `columns`, which hold lists or arrays. If there are several, the lists of a row must have the same length.
Columns out: an entry in the place of each list. The other columns are repeated (`result.several`). `row_id` gets the
entry's number, from 0: `a.csv#7.0`. A row whose list is empty or null makes no row and counts as filtered.
"""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.input_columns import ColumnsStep, lists_in, numbered
from overnight.tasks.rows import result
from overnight.tasks.rows.column_effect import ColumnEffect


class Explode(ColumnsStep):
    """Makes a row of each entry of a list."""

    kind: Literal["explode"] = "explode"
    columns: Annotated[list[str], Field(min_length=1, description="Columns with a list in each row, of one length.")]

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect(self.columns, makes=self.columns)

    def outcome(self, table: pa.Table) -> result.Outcome:
        lists = {name: lists_in(table, name, self.kind) for name in self.columns}
        lengths = {name: _lengths(values) for name, values in lists.items()}
        first = lengths[self.columns[0]]
        errors: dict[int, Exception] = {}
        for name, column_lengths in lengths.items():
            for row in np.flatnonzero(column_lengths != first).tolist():
                errors[row] = RowError(
                    f"explode: expected lists of one length, found {first[row]} entries in {self.columns[0]!r} and "
                    f"{column_lengths[row]} in {name!r}"
                )
        is_good = ~np.isin(np.arange(len(table)), list(errors))
        sources, numbers = numbered(np.where(is_good, first, 0))
        columns = {name: pc.list_flatten(values.filter(pa.array(is_good))) for name, values in lists.items()}
        return result.several(columns, sources, numbers, errors)


def _lengths(lists: pa.Array) -> np.ndarray:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
