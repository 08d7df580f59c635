"""Arrays cross between NumPy and Arrow unchanged. The suite of the users' values has plain values and PyTorch."""

import numpy as np
import pyarrow as pa
import pytest

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


def test_arrays_of_objects_cross_as_lists_of_their_values():
    values = [np.array(["a", "b"], object), None, np.array(["c"], object)]
    assert tensors.to_arrow(values).to_pylist() == [["a", "b"], None, ["c"]]


def test_texts_that_many_rows_repeat_are_one_object_each_and_others_cross_unchanged():
    repeated = pa.chunked_array([["a", "b", None, "a"] * 1000])
    back = tensors.to_numpy(repeated)
    assert back.tolist() == repeated.to_pylist()
    assert back.flags.writeable
    assert len({id(text) for text in back}) == 3
    varied = pa.chunked_array([["a"] * 3000 + [f"t{place}" for place in range(3000)], [None]])
    assert tensors.to_numpy(varied.slice(5)).tolist() == varied.to_pylist()[5:]
    assert tensors.to_numpy(varied.slice(2990)).tolist() == varied.to_pylist()[2990:]
