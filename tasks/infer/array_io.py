"""Models of arrays: columns become their input arrays, and their output arrays become columns.

In: columns of numbers (N) or of arrays (N x shape). Rows whose arrays differ in shape go to the model in separate
calls. Out: one array per output of the model, with one value per row, under the name from the job or the model.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.infer.model_files import ModelFile, file_versions
from overnight.tasks.infer.predictor import Batch, Offer, Predictor
from overnight.tasks.rows.plain_values import fields_of
from overnight.tasks.rows.user_values import snapshot

Columns = Annotated[
    list[str],
    Field(min_length=1, description="The columns for the model's inputs, in their order."),
]
Outputs = Annotated[
    list[str] | None,
    Field(min_length=1, description="Names of the model's outputs, in their order; default: its own names."),
]

MODEL_IN_A_FILE = Offer(
    "results of a model that you saved in a file",
    "any",
    "",
    lambda column: {"columns": [column], "outputs": None, "probabilities": None},
)
Call = Callable[[list[np.ndarray]], Mapping[str, Any]]  # a list in place of an array has one value per row


class FileModel(Predictor):
    """A model that is saved as one file, and reads arrays from columns."""

    offer: ClassVar[Offer] = MODEL_IN_A_FILE
    file: ModelFile
    columns: Columns

    def inputs(self) -> list[str]:
        return self.columns

    def fingerprint(self) -> dict[str, str]:
        return file_versions(self.file)

    def require_columns(self, types: Mapping[str, str]) -> None:
        """Raise `JobError` if the job does not name one column for each input; `types` has the inputs' types."""
        if len(types) != len(self.columns):
            inputs = ", ".join(f"{name} ({kind})" for name, kind in types.items())
            raise JobError(
                f"{self.file}: columns: expected one for each of its inputs, {inputs}, found "
                f"{', '.join(self.columns)}.",
                "infer",
            )


def in_calls(batch: Batch, columns: Sequence[str], call: Call) -> dict[str, Any]:
    """Run the model function `call` on stacked arrays of rows of one shape, and return its outputs in row order."""
    rows: list[np.ndarray] = []
    outputs: dict[str, list[Any]] = {}
    for numbers, arrays in _by_shape([_numbers(batch[name], name) for name in columns]):
        for name, values in call(arrays).items():
            _require_rows(name, values, len(numbers))
            outputs.setdefault(name, []).append(snapshot(values))  # the next call may use the memory of this one again
        rows.append(numbers)
    order = np.argsort(np.concatenate(rows))
    return {name: _in_order(parts, order) for name, parts in outputs.items()}


def _require_rows(name: str, values: Any, count: int) -> None:
    """Raise `ContractError` if an output does not have one value per row."""
    shape = (len(values),) if isinstance(values, list) else values.shape
    if not shape or shape[0] != count:
        size = " x ".join(map(str, shape)) or "a single value"
        raise ContractError(
            f"output {name!r}: expected {count} values, one per row, found {size}. Export the model with "
            "a first dimension of any length.",
            "infer",
        )


def named(outputs: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return name -> output, paired in order. Raise `ContractError` if names and outputs differ in number."""
    if len(outputs) != len(names):
        raise ContractError(
            f"outputs: expected {len(outputs)} names, one for each output of the model, found {', '.join(names)}.",
            "infer",
        )
    return dict(zip(names, outputs, strict=True))


def by_name(returned: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return name -> output. `names` selects from a mapping, and names a tuple, a list or a single output in order."""
    fields = None if names and isinstance(returned, tuple) else fields_of(returned)
    if fields is None:
        outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
        return named(outputs, names or ["output"])
    wrong = sorted(set(names or ()) - fields.keys())
    if wrong:
        raise ContractError(
            f"outputs: expected names among {', '.join(fields)}, which the model returns, found {', '.join(wrong)}.",
            "infer",
        )
    return {name: fields[name] for name in names or fields}


def cast(array: np.ndarray, kind: np.dtype | type, name: str, column: str) -> np.ndarray:
    """Return the array of `column` in the type `kind` of the model's input, unless that would cut numbers."""
    if not np.can_cast(array.dtype, kind, "same_kind"):
        raise ContractError(
            f"{column}: expected {np.dtype(kind).name} for the model's input {name}, found {array.dtype}. "
            "Convert it in preprocess.",
            "infer",
        )
    return np.ascontiguousarray(array, kind)


def _numbers(values: np.ndarray, column: str) -> np.ndarray:
    """Return the column's array of numbers, or its object array of arrays if their shapes differ."""
    if values.dtype != object:
        if values.dtype.kind not in "biuf":
            raise RowError(f"{column}: expected numbers or arrays of numbers, found {values.dtype}.")
        return values
    for value in values:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            content = "no value" if value is None else f"{type(value).__name__} {value!r:.80}"
            raise RowError(f"{column}: expected a number or an array of numbers, found {content}.")
    return values


def _by_shape(arrays: list[np.ndarray]) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield groups of rows whose values have the same shapes and types: row numbers (int64), and stacked arrays."""
    if all(array.dtype != object for array in arrays):
        yield np.arange(len(arrays[0])), arrays
        return
    groups: dict[Any, list[int]] = {}
    for row in range(len(arrays[0])):
        key = tuple((array[row].shape, array[row].dtype) for array in arrays)
        groups.setdefault(key, []).append(row)
    for rows in groups.values():
        inputs = []
        for array in arrays:
            values = array[rows]
            if array.dtype == object:
                values = np.stack(list(values))
            inputs.append(values)
        yield np.array(rows), inputs


def _in_order(parts: list[Any], order: np.ndarray) -> Any:
    if not any(isinstance(part, list) for part in parts) and len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)[order]
    values = list(itertools.chain(*parts))
    return [values[row] for row in order]
