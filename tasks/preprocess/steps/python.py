"""The user's own step. It gets columns as NumPy arrays with one value per row, and returns columns to add or replace.

With `explode: [text]` the step makes several rows from each row. In the named columns, the value of a row is a list
with one entry per new row. An empty list drops the row. `row_id` gets the entry's number, from 0 (`a.csv#7.0`). The
other columns are repeated, as `result.several` describes.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.config.user_code import Target, fingerprint, import_target, made
from overnight.tasks.config.user_signature import UserCode
from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, user_function
from overnight.tasks.rows.tensors import to_arrow
from overnight.tasks.storage.argument_files import argument_files


class PythonStep(PreprocessStep):
    """A function or class in the form of Ray Data's `map_batches`.

    A worker makes a class once with `kwargs` and calls it with each batch; a function is called with the batch and
    `kwargs`. Either returns a dict of columns.
    """

    kind: Literal["python"] = "python"
    target: Target
    kwargs: Annotated[
        dict[str, Any], Field(description="Arguments of the class, or further arguments of the function.")
    ] = {}
    explode: Annotated[
        list[str], Field(description="Returned columns that hold a list per row: each entry becomes a row.")
    ] = []

    def code(self) -> list[UserCode]:
        return [UserCode(self.target, "preprocess", self.kwargs)]

    def fingerprint(self) -> dict[str, str]:
        """Return the sha256 of each file of the step's code, by file name.

        They are the target's module, modules that it imports from the working directory, and files that `kwargs` name.
        """
        return fingerprint(self.target, "preprocess") | argument_files(self.kwargs)

    def build(self) -> result.Work:
        """Return the step's work. Raise `JobError` if the target cannot be imported, made or called."""
        found = import_target(self.target, "preprocess")
        function = partial(found, **self.kwargs)
        if isinstance(found, type):
            function = made(self.target, found, self.kwargs, "preprocess")
            if not callable(function):
                raise JobError(
                    f"{self.target}: expected a method __call__(self, batch), found none. Add it.", "preprocess"
                )

        def step(table: pa.Table) -> result.Outcome:
            made = user_function.outcome_of(function, table, "preprocess", self.target, as_cells=self.explode)
            return exploded(made.columns, self.explode, self.target, made.failed) if self.explode else made

        return step


def exploded(
    columns: Mapping[str, Any], names: list[str], what: str, failed: Mapping[int, Exception]
) -> result.Outcome:
    """Return the rows that a step makes from lists: one row for each entry of the lists in the columns `names`.

    `columns` are the columns that the step returned, with a value per row. `failed` maps the number of a row that makes
    no rows to its error. `what` names the step in errors. Raise `ContractError` if a column is missing, a value is not
    a list, or the lists of a row differ in length.
    """
    for name in names:
        if name not in columns:
            raise ContractError(
                f"{what}: expected column {name!r} of explode, found {', '.join(columns)}. Return it.", "preprocess"
            )
    lists = {
        name: [() if row in failed else _entries(value, name, what) for row, value in enumerate(columns[name])]
        for name in names
    }
    counts = [len(value) for value in lists[names[0]]]
    for name, values in lists.items():
        if [len(value) for value in values] != counts:
            raise ContractError(
                f"{what}: the columns of explode ({', '.join(names)}) have lists of different lengths in a row: "
                f"{names[0]!r} and {name!r}. Return one entry in each for every new row.",
                "preprocess",
            )
    made_of = [row for row, count in enumerate(counts) for _ in range(count)]
    made = {name: [entry for value in values for entry in value] for name, values in lists.items()}
    others = {
        name: to_arrow(values).take(pa.array(made_of, pa.int64()))
        for name, values in columns.items()
        if name not in made
    }
    return result.several({**made, **others}, made_of, [number for count in counts for number in range(count)], failed)


def _entries(value: Any, name: str, what: str) -> Any:
    if value is None:
        return []
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__"):
        raise ContractError(
            f"{what}: expected a list for each row in column {name!r} of explode, found {type(value).__name__}.",
            "preprocess",
        )
    return value
