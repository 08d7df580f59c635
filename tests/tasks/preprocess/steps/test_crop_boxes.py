"""The types of boxes that a column may have, under names with a beginning of their own."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.preprocess.steps.crop_boxes import CropBoxes
from overnight.tasks.rows import tensors
from overnight.tasks.rows.blocks import FILTERED, LIVE, live_rows
from tests.contracts.steps.adapter import applied, named

IMAGES = tensors.to_arrow([np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3), np.zeros((4, 4, 3), np.uint8)])


@pytest.mark.parametrize(
    "boxes",
    [
        pa.array([[[0, 0, 2, 1]], []], pa.list_(pa.list_(pa.decimal128(4, 1)))),
        tensors.to_arrow([np.array([[0, 0, 2, 1]]), np.zeros((0, 4))]),
        pa.array([[[0, 0, 2, 1]], None], pa.large_list(pa.list_(pa.int16(), 4))),
    ],
    ids=["decimals", "array", "integers"],
)
def test_boxes_may_be_any_lists_of_numbers(boxes: pa.Array) -> None:
    scores = pa.array([[0.5], []], pa.list_(pa.float32()))
    rows = named(pa.table({"image": IMAGES, "found_boxes": boxes, "found_scores": scores}))
    done = applied(CropBoxes(boxes="found_boxes"), rows)
    assert live_rows(done)[0].drop_columns("image").to_pylist() == [
        {"row_id": "file0#0", "found_box": [0, 0, 2, 1], "found_score": 0.5}
    ]
    assert done["__state"].to_pylist() == [LIVE, FILTERED]
