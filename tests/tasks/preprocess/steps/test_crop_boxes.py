"""The types of boxes that a column may have, and those that it may not."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.crop_boxes import CropBoxes
from overnight.tasks.rows import apply, tensors
from overnight.tasks.rows.blocks import FILTERED, LIVE, live_rows
from tests.tasks.blocks import source_block

IMAGES = [np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3), np.zeros((4, 4, 3), np.uint8)]
BOXES = pa.array([[[0, 0, 2, 1]], []], pa.list_(pa.list_(pa.float32())))


def cropped(boxes: object = BOXES, **others: object) -> pa.Table:
    table = pa.table({"row_id": ["0", "1"], "image": tensors.to_arrow(IMAGES), "found_boxes": boxes, **others})
    return apply.apply(source_block(0, 0, table), "infer", CropBoxes(boxes="found_boxes").build())


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
    done = cropped(boxes, found_scores=pa.array([[0.5], []], pa.list_(pa.float32())))
    assert live_rows(done)[0].drop_columns("image").to_pylist() == [
        {"row_id": "0#0", "found_box": [0, 0, 2, 1], "found_score": 0.5}
    ]
    assert done["__state"].to_pylist() == [LIVE, FILTERED]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("found_boxes", [[{"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}], []]),
        ("found_boxes", [{"xmin": 0}, None]),
        ("found_boxes", [[0, 0, 1, 1], []]),
        ("found_boxes", [1, 2]),
        ("found_boxes", ["0 0 1 1", None]),
        ("found_boxes", [[["0", "0", "1", "1"]], []]),
        ("found_boxes", [[[[0, 0, 1, 1]]], []]),
        ("found_labels", ["cat", "dog"]),
        ("found_labels", [{"a": 1}, None]),
        ("found_labels", [1, 2]),
        ("image", [b"jpeg", b"jpeg"]),
    ],
    ids=str,
)
def test_a_column_that_cannot_hold_boxes_labels_or_images_is_refused_with_its_name(name: str, values: list) -> None:
    with pytest.raises(ContractError) as caught:
        cropped(**({"boxes": values} if name == "found_boxes" else {name: values}))
    assert repr(name) in str(caught.value)
