"""Values are alike within the tolerance of their column, and equal without one."""

import math

import pyarrow as pa

from overnight.flows.compare.alike import HALF, SINGLE, alike, differing, tolerance_of


def test_numbers_of_models_may_differ_by_a_tolerance_and_nothing_else() -> None:
    vector = [0.5, -0.25, 1e-7]
    assert alike(vector, [0.5002, -0.2501, 0.0], SINGLE)
    assert not alike(vector, [0.51, -0.25, 0.0], SINGLE)
    assert alike({"box": [1, 2], "score": 0.9}, {"box": [1, 2], "score": 0.9001}, SINGLE)
    assert not alike({"box": [1, 3], "score": 0.9}, {"box": [1, 2], "score": 0.9}, SINGLE)
    assert not alike([0.5], [0.5, 0.5], HALF)
    assert not alike(None, 0.0, HALF)
    assert alike(math.nan, math.nan, 0.0)
    assert not alike(0.1, 0.1 + 1e-12, 0.0)
    kinds = [(pa.float32(), []), (pa.float32(), [None]), (pa.list_(pa.float32()), ["bfloat16"]), (pa.string(), [None])]
    assert [tolerance_of(kind, dtypes) for kind, dtypes in kinds] == [0.0, SINGLE, HALF, 0.0]


def test_rows_that_differ_have_their_numbers_also_if_the_type_is_another() -> None:
    before = pa.chunked_array([[1, 2], [3, None]])
    assert differing(pa.chunked_array([[1.0, 2.0, 4.0, None]]), before, 0.0) == [2]
    assert differing(pa.chunked_array([["1", "two", "3", None]]), before, 0.0) == [1]
