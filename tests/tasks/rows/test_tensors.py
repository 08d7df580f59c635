"""Arrays and plain values cross between NumPy, torch and Arrow unchanged."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from overnight.tasks.rows import tensors

ARRAYS = [
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    np.ones((2, 3), np.float16),
    np.array([["a", "bc"], ["d", "e"]]),
    np.array([[True, False], [False, False]]),
    np.zeros((2, 0, 3)),
    np.array([["2024-01-01"], ["NaT"]], "M8[s]"),
    np.arange(6, dtype=">i4").reshape(2, 3),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_stacked_arrays_cross_unchanged_whole_and_in_slices(array: np.ndarray):
    column = pa.chunked_array([tensors.to_arrow(array)])
    for found, expected in ((column, array), (column.slice(1), array[1:])):
        back = tensors.to_numpy(found)
        np.testing.assert_array_equal(back, expected)
        assert back.dtype == array.dtype.newbyteorder("=")


def test_arrays_of_unlike_shapes_and_missing_ones_cross_as_objects():
    values = [np.zeros((2, 3), np.uint8), None, np.ones((1, 5, 2))]
    back = tensors.to_numpy(pa.chunked_array([tensors.to_arrow(values)]))
    assert back[1] is None
    assert (back[0].shape, back[2].shape, back[2].dtype) == ((2, 3), (1, 5, 2), np.float64)
    assert tensors.to_arrow([None, None]).null_count == 2


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [
        ([1, None], [1, None]),
        ([np.float32(0.5), np.str_("x")][:1], [0.5]),
        ([{"a": [1]}, None], [{"a": [1]}, None]),
        (np.array(["a", None], object), ["a", None]),
        (torch.tensor([1, 2]), [1, 2]),
        ([torch.tensor(1), torch.tensor(2)], [1, 2]),
        ([np.datetime64("2024-01-01T00:00:00", "ns")], [datetime.datetime(2024, 1, 1)]),
        ([decimal.Decimal("1.5")], [decimal.Decimal("1.5")]),
        ([np.array(["a", "b"], object), np.array(["c"], object), None], [["a", "b"], ["c"], None]),
        (np.array([["a", "b"], ["c", "d"]], object), [["a", "b"], ["c", "d"]]),
        (pa.chunked_array([[1], [2]]), [1, 2]),
        (np.array([1, 2], ">i2"), [1, 2]),
    ],
)
def test_whatever_a_predictor_returns_becomes_plain_values(given_values: Any, expected: list):
    assert tensors.to_arrow(given_values).to_pylist() == expected


def test_a_list_of_tensors_is_a_list_of_arrays():
    back = tensors.to_numpy(pa.chunked_array([tensors.to_arrow([torch.ones(2), torch.zeros(2)])]))
    np.testing.assert_array_equal(back, [[1, 1], [0, 0]])
