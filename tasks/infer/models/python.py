"""Any model of the user's own: a class in the form of Ray Data's documentation for `map_batches`, or a function.

In: every column, or those of `columns`, as an array with one value per row. Integers with nulls, and times with a zone,
are object arrays.
Out: the columns of the returned dict, added or replaced. The class is made once per worker, with `kwargs`.
"""

from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.config.user_code import Target, fingerprint, import_target, made
from overnight.tasks.config.user_signature import UserCode, kwargs_refused
from overnight.tasks.errors import JobError
from overnight.tasks.infer.predictor import Predict, Predictor
from overnight.tasks.rows import user_values
from overnight.tasks.storage.argument_files import argument_files


class PythonPredictor(Predictor):
    """Runs your own class or function."""

    kind: Literal["python"] = "python"
    target: Target
    kwargs: Annotated[dict[str, Any], Field(description="Arguments of the class's `__init__`.")] = {}
    columns: Annotated[
        list[str] | None,
        Field(
            min_length=1,
            description="The columns that the model gets, and no others. Then a change of another column runs no row "
            "again in a job with `memory`; default: all columns.",
        ),
    ] = None

    def inputs(self) -> list[str] | None:
        return self.columns

    def limits_gpu_memory(self) -> bool:
        return True

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        return user_values.given(column)

    def code(self) -> list[UserCode]:
        return [UserCode(self.target, "infer", self.kwargs, takes_kwargs=False)]

    def fingerprint(self) -> dict[str, str]:
        return fingerprint(self.target, "infer") | argument_files(self.kwargs)

    def load(self) -> Predict:
        if self.gpu_memory:
            self.torch_device()  # which limits what the class takes there by PyTorch
        target = import_target(self.target, "infer")
        if not isinstance(target, type):
            if self.kwargs:
                raise kwargs_refused(self.target, self.kwargs, "infer")
            return target
        predictor = made(self.target, target, self.kwargs, "infer")
        if not callable(predictor):
            raise JobError(f"{self.target}: expected a method __call__(self, batch), found none. Add it.", "infer")
        return predictor
