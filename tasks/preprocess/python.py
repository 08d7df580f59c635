"""The user's own step: columns in as NumPy arrays, one value a row; columns out added or replaced, the others stay."""

from functools import partial
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from tasks import rows
from tasks.errors import JobError, OvernightError
from tasks.preprocess.step import PreprocessStep
from tasks.targets import Target, described, fingerprint, import_target


class PythonStep(PreprocessStep):
    """A function or class as Ray Data's `map_batches` takes it.

    A class is made once a worker with `kwargs` and called with each batch; a function is called with the batch and
    `kwargs`. Either returns a dict of columns.
    """

    kind: Literal["python"] = "python"
    target: Target
    kwargs: Annotated[
        dict[str, Any], Field(description="Arguments of the class, or further ones of the function.")
    ] = {}

    def fingerprint(self) -> dict[str, str]:
        """File name -> sha256 of the step's code."""
        return fingerprint(self.target, "preprocess")

    def build(self) -> rows.Work:
        """Raises `JobError` when the target cannot be imported, made or called."""
        found = import_target(self.target, "preprocess")
        function = partial(found, **self.kwargs)
        if isinstance(found, type):
            try:
                function = found(**self.kwargs)
            except OvernightError:
                raise
            except Exception as error:
                message = described(error, found.__module__)
                raise JobError(f"{self.target}: __init__ raised {message}", "preprocess") from error
            if not callable(function):
                raise JobError(
                    f"{self.target}: expected a method __call__(self, batch), found none. Add it.", "preprocess"
                )

        def step(table: pa.Table) -> rows.Outcome:
            return rows.Outcome(rows.call(function, table, "preprocess", self.target))

        return step
