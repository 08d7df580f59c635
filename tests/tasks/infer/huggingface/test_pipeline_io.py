"""Results of pipelines as columns: numbers keep their types, and a missing field is null."""

import enum
import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from overnight.tasks.errors import InvalidValues
from overnight.tasks.infer.huggingface.pipeline_io import GROUPED, TYPES, columns_of, declared
from overnight.tasks.rows.tensors import to_numpy


class Kind(enum.Enum):
    PERSON = "person"


def test_numbers_keep_their_types_and_a_missing_field_is_null() -> None:
    results = [
        {"a": np.float32(0.1), "b": 2**60, "c": [{"x": np.int32(1)}], "d": np.zeros((2, 3), np.uint8)},
        {"a": None, "c": [], "d": np.ones((1, 3), np.uint8), "e": np.bool_(True), "g": [1, 2.5, None]},
    ]
    found = columns_of(results, {"f": pa.string()})
    kinds = {"a": pa.float32(), "b": pa.int64(), "c": pa.list_(pa.struct([("x", pa.int32())])), "e": pa.bool_()}
    kinds |= {"f": pa.string(), "g": pa.list_(pa.float64())}
    assert {name: found[name].type for name in kinds} == kinds
    assert found["a"].to_pylist() == [np.float32(0.1).item(), None]
    assert found["b"].to_pylist() == [2**60, None]
    assert [array.dtype for array in to_numpy(found["d"])] == [np.uint8, np.uint8]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_arrays_of_any_dimension_inside_a_value_keep_the_type_of_their_numbers(dtype: type) -> None:
    kind = pa.from_numpy_dtype(dtype)
    number, masks = np.array(3, dtype), np.ones((2, 3), dtype)
    row = {"number": number, "masks": [{"mask": masks}], "both": {"numbers": [number], "stack": masks[None]}}
    found = columns_of([row], {})
    assert found["number"].type == kind
    assert found["masks"].type == pa.list_(pa.struct([("mask", pa.list_(pa.list_(kind)))]))
    both = [("numbers", pa.list_(kind)), ("stack", pa.list_(pa.list_(pa.list_(kind))))]
    assert found["both"].type == pa.struct(both)
    assert found["masks"].to_pylist() == [[{"mask": masks.tolist()}]]


def test_results_that_are_no_dicts_are_one_column() -> None:
    assert columns_of([["a"], []], {})["output"].to_pylist() == [["a"], []]
    assert columns_of([{"a": 1}, [2]][1:], {})["output"].to_pylist() == [[2]]
    assert columns_of([(Kind.PERSON, None)], {})["output"].to_pylist() == [["person", None]]


@pytest.mark.parametrize("results", [[{"a": 1}, {"a": "b"}], [[1, "b"]], [object()]])
def test_values_without_a_common_type_are_refused(results: list[object]) -> None:
    with pytest.raises(InvalidValues):
        columns_of(results, {})


def test_an_image_at_any_depth_is_a_png() -> None:
    image = Image.new("RGB", (2, 1), "red")
    [[row]] = columns_of([[{"mask": image}]], {})["output"].to_pylist()
    assert np.asarray(Image.open(io.BytesIO(row["mask"]))).tolist() == np.asarray(image).tolist()


def test_entities_in_groups_have_types_of_their_own() -> None:
    task = "token-classification"
    assert declared(task, {}) == declared(task, {"aggregation_strategy": "none"}) == TYPES[task]
    assert declared(task, {"aggregation_strategy": "simple"}) == GROUPED
    assert declared("text-generation", {}) == {}
