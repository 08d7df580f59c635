"""Conversion of columns to the input arrays of a model, and of its output arrays to columns.

In: columns of numbers (N) or of arrays (N x shape). Rows whose arrays differ in shape go to the model in separate
calls. Out: one array per output of the model, with one value per row, under the name from the job or the model. This
file does not use torch or onnxruntime.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.infer.predictor import Batch
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

Call = Callable[[list[np.ndarray]], Mapping[str, Any]]  # a list in place of an array has one value per row


def in_calls(batch: Batch, columns: Sequence[str], call: Call) -> dict[str, Any]:
    """Run the model function `call` on the rows of `batch`, and return output name -> one value per row, in row order.

    `batch` maps each column's name to an array with one value per row. `call` gets one stacked array (N x shape) per
    name in `columns`, and returns output name -> array. Rows whose arrays differ in shape or type go to separate calls.
    Raise `RowError` for a value that is not a number or an array of numbers. Raise `ContractError` if an output does
    not have one value per row.
    """
    places, made = [], []
    for rows, arrays in _alike([_numbers(batch[name], name) for name in columns]):
        outputs = call(arrays)
        for name, values in outputs.items():
            shape = (len(values),) if isinstance(values, list) else values.shape
            if not shape or shape[0] != len(rows):
                found = " x ".join(map(str, shape)) or "a single value"
                raise ContractError(
                    f"output {name!r}: expected {len(rows)} values, one per row, found {found}. Export the model with "
                    "a first dimension of any length.",
                    "infer",
                )
        places.append(rows)
        # The next call may use the memory of this one again.
        made.append({name: snapshot(values) for name, values in outputs.items()})
    back = np.argsort(np.concatenate(places))
    return {name: _in_order([outputs[name] for outputs in made], back) for name in made[0]}


def named(outputs: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return name -> output, paired in order. Raise `ContractError` if names and outputs differ in number."""
    if len(outputs) != len(names):
        raise ContractError(
            f"outputs: expected {len(outputs)} names, one for each output of the model, found {', '.join(names)}.",
            "infer",
        )
    return dict(zip(names, outputs, strict=True))


def by_name(returned: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return name -> output for the result of a model: a mapping, a tuple or list of outputs, or a single output.

    `names` selects from a mapping, and names other outputs in their order. Without `names`, a mapping or a named tuple
    keeps its own names, and a single output is `output`. Raise `ContractError` if a mapping lacks one of `names`. Raise
    it too if other outputs differ in number from `names`, or are several without `names`.
    """
    fields = None if names and isinstance(returned, tuple) else fields_of(returned)
    if fields is not None:
        returned = fields
        missing = [name for name in names or () if name not in returned]
        if missing:
            raise ContractError(
                f"outputs: expected names among {', '.join(returned)}, which the model returns, found "
                f"{', '.join(missing)}.",
                "infer",
            )
        return {name: returned[name] for name in names or returned}
    several = list(returned) if isinstance(returned, tuple | list) else [returned]
    return named(several, names or ["output"])


def cast(array: np.ndarray, kind: np.dtype | type, name: str, column: str) -> np.ndarray:
    """Return the array of `column` in the type `kind` of the model's input `name`.

    Raise `ContractError` if that would cut numbers to whole numbers.
    """
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
            what = "no value" if value is None else f"{type(value).__name__} {value!r:.80}"
            raise RowError(f"{column}: expected a number or an array of numbers, found {what}.")
    return values


def _alike(arrays: list[np.ndarray]) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield groups of rows whose values have the same shapes and types: row numbers (int64), and stacked arrays."""
    if all(array.dtype != object for array in arrays):
        yield np.arange(len(arrays[0])), arrays
        return
    groups: dict[Any, list[int]] = {}
    for row in range(len(arrays[0])):
        key = tuple((array[row].shape, array[row].dtype) for array in arrays)
        groups.setdefault(key, []).append(row)
    for rows in groups.values():
        stacked = [np.stack(list(array[rows])) if array.dtype == object else array[rows] for array in arrays]
        yield np.array(rows), stacked


def _in_order(parts: list[Any], back: np.ndarray) -> Any:
    if not any(isinstance(part, list) for part in parts) and len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)[back]
    values = [value for part in parts for value in part]
    return [values[place] for place in back]
