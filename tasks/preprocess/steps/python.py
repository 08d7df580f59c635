"""The user's own step. It gets columns as NumPy arrays with one value per row, and returns columns to add or replace.

Without `columns`, it gets all of them.

With `explode: [text]` the step makes several rows from each row: the value of the named columns is a list with one
entry per new row. An empty list drops the row. `row_id` gets the entry's number, from 0 (`a.csv#7.0`).
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.config.user_code import Target, fingerprint, import_target, made
from overnight.tasks.config.user_signature import UserCode
from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.input_columns import numbered, require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, user_function
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.tensors import to_arrow
from overnight.tasks.storage.argument_files import argument_files


class PythonStep(PreprocessStep):
    """A function or class in the form of Ray Data's `map_batches`.

    A worker makes a class once with `kwargs` and calls it with each batch; a function is called with the batch and
    `kwargs`. Either returns a dict of columns.
    """

    kind: Literal["python"] = "python"

    can_be_remembered: ClassVar[bool] = True

    target: Target
    kwargs: Annotated[
        dict[str, Any], Field(description="Arguments of the class, or further arguments of the function.")
    ] = {}
    explode: Annotated[
        list[str], Field(description="Returned columns that hold a list per row: each entry becomes a row.")
    ] = []

    columns: Annotated[
        list[str] | None,
        Field(min_length=1, description="The columns that the step gets, and no others; default: all columns."),
    ] = None

    def inputs(self) -> list[str] | None:
        return self.columns

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect(self.columns or [], makes_others=True)

    def code(self) -> list[UserCode]:
        return [UserCode(self.target, "preprocess", self.kwargs)]

    def fingerprint(self) -> dict[str, str]:
        """Return the sha256 of each file of the step's code, by file name.

        They are the target's module, modules that it imports from the working directory, and files that `kwargs` name.
        """
        return fingerprint(self.target, "preprocess") | argument_files(self.kwargs)

    def build(self) -> result.Work:
        """Return the step's work. Raise `JobError` if the target cannot be imported, made or called."""
        code = import_target(self.target, "preprocess")
        function = partial(code, **self.kwargs)
        if isinstance(code, type):
            function = made(self.target, code, self.kwargs, "preprocess")
            if not callable(function):
                raise JobError(
                    f"{self.target}: expected a method __call__(self, batch), found none. Add it.", "preprocess"
                )

        def step(table: pa.Table) -> result.Outcome:
            if self.columns:
                require_columns(table, self.columns, self.target)
                table = table.select(self.columns)
            outcome = user_function.outcome_of(function, table, "preprocess", self.target, as_cells=self.explode)
            return self._exploded(outcome) if self.explode else outcome

        return step

    def _exploded(self, outcome: result.Outcome) -> result.Outcome:
        """Return a row for each entry of the lists in the columns `explode`; a failed row makes no rows.

        Raise `ContractError` if a column is missing, a value is not a list, or the lists of a row differ in length.
        """
        lists: dict[str, list[Sequence[Any]]] = {}
        for name in self.explode:
            if name not in outcome.columns:
                problem = f"expected column {name!r} of explode, found {', '.join(outcome.columns)}. Return it."
                raise ContractError(f"{self.target}: {problem}", "preprocess")
            lists[name] = []
            for row, cell in enumerate(outcome.columns[name]):
                lists[name].append(() if row in outcome.failed else self._entries(cell, name))
        first = self.explode[0]
        counts = np.array(list(map(len, lists[first])), np.int64)
        for name, cells in lists.items():
            if list(map(len, cells)) != counts.tolist():
                raise ContractError(
                    f"{self.target}: the columns of explode ({', '.join(self.explode)}) have lists of different "
                    f"lengths in a row: {first!r} and {name!r}. Return one entry in each for every new row.",
                    "preprocess",
                )
        sources, numbers = numbered(counts)
        rows: dict[str, Any] = {name: list(itertools.chain.from_iterable(cells)) for name, cells in lists.items()}
        for name, values in outcome.columns.items():
            if name not in lists:
                rows[name] = to_arrow(values).take(pa.array(sources))
        return result.several(rows, sources, numbers, outcome.failed)

    def _entries(self, cell: Any, name: str) -> Any:
        if cell is None:
            return ()
        if isinstance(cell, str | bytes | Mapping) or not hasattr(cell, "__len__"):
            problem = f"expected a list for each row in column {name!r} of explode, found {type(cell).__name__}."
            raise ContractError(f"{self.target}: {problem}", "preprocess")
        return cell
