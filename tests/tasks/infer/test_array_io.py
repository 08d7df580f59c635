"""Columns as the input arrays of a model, and its outputs as columns."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.infer.array_io import by_name, cast, in_calls, named


class Pair(NamedTuple):
    a: int
    b: int


def objects(*values: Any) -> np.ndarray:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def test_rows_of_unlike_shapes_or_types_go_to_calls_of_their_own_and_come_back_in_order() -> None:
    shapes = ((4, 4), (2, 6), (4, 4), (8, 1), (2, 6))
    images = objects(*(np.full(shape, row, np.float32) for row, shape in enumerate(shapes)))
    calls, kept = [], np.zeros(9)

    def call(arrays: list[np.ndarray]) -> dict[str, Any]:
        calls.append([array.shape for array in arrays])
        kept[: len(arrays[0])] = arrays[1]
        return {"same": arrays[0], "sum": kept[: len(arrays[0])], "texts": [f"{value}" for value in arrays[1]]}

    found = in_calls({"image": images, "n": np.arange(5)}, ["image", "n"], call)
    assert calls == [[(2, 4, 4), (2,)], [(2, 2, 6), (2,)], [(1, 8, 1), (1,)]]
    assert [value.tolist() for value in found["same"]] == [image.tolist() for image in images]
    assert (found["sum"].tolist(), found["texts"]) == ([0, 1, 2, 3, 4], list("01234"))


def test_arrays_of_one_shape_are_stacked_in_one_call() -> None:
    found = in_calls({"x": objects(*np.eye(2, dtype=np.float32))}, ["x"], lambda arrays: {"y": arrays[0] * 2})
    assert found["y"].tolist() == [[2, 0], [0, 2]]
    assert found["y"].dtype == np.float32


@pytest.mark.parametrize(
    ("values", "found"),
    [(objects("a", 1), "found str 'a'"), (objects(None), "found no value"), (np.array(["a"]), "found <U1")],
)
def test_a_value_that_is_no_number_is_the_rows_own_fault(values: np.ndarray, found: str) -> None:
    with pytest.raises(RowError, match=f"x: expected .*numbers, {found}"):
        in_calls({"x": values}, ["x"], lambda arrays: {"y": arrays[0]})


@pytest.mark.parametrize(("output", "found"), [(np.zeros(3), "found 3"), (np.array(1), "a single value"), ([1], "1")])
def test_an_output_has_one_value_per_row(output: Any, found: str) -> None:
    with pytest.raises(ContractError, match=f"output 'y': expected 2 values, one per row, .*{found}"):
        in_calls({"x": np.zeros(2)}, ["x"], lambda arrays: {"y": output})


def test_outputs_get_the_names_of_the_job_or_their_own() -> None:
    assert by_name(5, None) == {"output": 5}
    assert by_name((5, 6), ["a", "b"]) == by_name([5, 6], ["a", "b"]) == {"a": 5, "b": 6}
    assert by_name(Pair(5, 6), None) == {"a": 5, "b": 6}
    assert by_name(Pair(5, 6), ["x", "y"]) == {"x": 5, "y": 6}
    assert by_name({"a": 5, "b": 6}, ["b"]) == {"b": 6}
    with pytest.raises(ContractError, match=r"among a, b, .*found c"):
        by_name({"a": 5, "b": 6}, ["b", "c"])
    with pytest.raises(ContractError, match="outputs: expected 2 names"):
        named([5, 6], ["a"])


def test_numbers_are_cast_within_their_kind_alone() -> None:
    assert cast(np.arange(3, dtype=np.uint8), np.int64, "i", "x").dtype == np.int64
    assert cast(np.arange(3), np.float32, "i", "x").dtype == np.float32
    with pytest.raises(ContractError, match="x: expected int64 for the model's input i, found float32"):
        cast(np.zeros(3, np.float32), np.int64, "i", "x")
