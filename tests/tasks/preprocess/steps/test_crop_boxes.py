"""A row for each box, with its pixels; boxes beyond the image are cut, and one outside quarantines its row."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.crop_boxes import CropBoxes
from overnight.tasks.rows import apply, blocks, tensors
from tests.tasks.blocks import source_block

IMAGES = [np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3), np.zeros((4, 4, 3), np.uint8)]
BOXES = pa.list_(pa.list_(pa.float32()))


def cropped(boxes: list, images: list = IMAGES, **others: pa.Array) -> pa.Table:
    names = [f"{number}.jpg" for number in range(len(images))]
    table = pa.table(
        {"row_id": names, "image": tensors.to_arrow(images), "found_boxes": pa.array(boxes, BOXES), **others}
    )
    return apply.apply(source_block(0, 0, table), "infer", CropBoxes(boxes="found_boxes").build())


def test_each_box_is_a_row_with_its_pixels_label_and_score() -> None:
    labels = pa.array([["cat", "dog"], ["bird"]])
    scores = pa.array([[0.9, 0.8], [0.7]], pa.list_(pa.float32()))
    boxes = [[[1.2, 2, 4, 5.5], [-3, -3, 100, 100]], [[0, 0, 2, 2]]]
    done = blocks.live_rows(cropped(boxes, found_labels=labels, found_scores=scores))[0]
    assert done["row_id"].to_pylist() == ["0.jpg#0", "0.jpg#1", "1.jpg#0"]
    assert done.column_names == ["row_id", "image", "found_box", "found_label", "found_score"]
    crops = tensors.to_numpy(done["image"])
    np.testing.assert_array_equal(crops[0], IMAGES[0][2:6, 1:4])
    np.testing.assert_array_equal(crops[1], IMAGES[0])
    np.testing.assert_array_equal(crops[2], IMAGES[1][:2, :2])
    assert done["found_label"].to_pylist() == ["cat", "dog", "bird"]
    assert done["found_score"].type == pa.float32()
    assert done["found_box"].to_pylist()[2] == [0, 0, 2, 2]


def test_an_image_without_a_box_makes_no_row() -> None:
    done = cropped([[], None])
    assert done["__state"].to_pylist() == [blocks.FILTERED] * 2


@pytest.mark.parametrize(
    ("box", "told"),
    [
        ([9, 0, 12, 2], "in the image of 8 x 6 pixels"),
        ([3, 3, 1, 1], "in the image"),
        ([1, 2, 3], "of four numbers"),
        ([float("nan"), 0, 1, 1], "of four numbers"),
    ],
)
def test_a_box_that_holds_no_pixel_quarantines_its_row_alone(box: list, told: str) -> None:
    done = cropped([[[0, 0, 1, 1], box], [[0, 0, 1, 1]]])
    assert done["__state"].to_pylist() == [blocks.QUARANTINED, blocks.LIVE]
    assert told in done["__error_message"][0].as_py()


@pytest.mark.parametrize(
    "boxes",
    [
        [[{"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}], []], [{"xmin": 0}, None], [[0, 0, 1, 1], []], [1, 2],
        ["0 0 1 1", None], [[["0", "0", "1", "1"]], []], [[[[0, 0, 1, 1]]], []],
    ],
    ids=str,
)  # fmt: skip
def test_a_column_that_cannot_hold_boxes_is_refused_with_its_type(boxes: list) -> None:
    table = pa.table({"row_id": ["0", "1"], "image": tensors.to_arrow(IMAGES), "boxes": boxes})
    told = r"expected lists of boxes in column 'boxes', .*, found .*\. Make such lists in derive_columns before it\."
    with pytest.raises(ContractError, match=told):
        apply.apply(source_block(0, 0, table), "infer", CropBoxes().build())


@pytest.mark.parametrize("labels", [["cat", "dog"], [{"a": 1}, None], [1, 2]], ids=str)
def test_labels_that_are_not_lists_are_refused_with_their_type(labels: list) -> None:
    with pytest.raises(ContractError, match=r"crop_boxes: expected lists in column 'found_labels', found "):
        cropped([[[0, 0, 1, 1]], []], found_labels=pa.array(labels))


@pytest.mark.parametrize(
    "boxes",
    [
        pa.array([[[0, 0, 2, 1]], []], pa.list_(pa.list_(pa.decimal128(4, 1)))),
        tensors.to_arrow([np.array([[0, 0, 2, 1]]), np.zeros((0, 4))]),
    ],
)
def test_boxes_may_be_decimals_or_an_array_and_a_missing_number_quarantines_its_row(boxes: pa.Array) -> None:
    table = pa.table({"row_id": ["0", "1"], "image": tensors.to_arrow(IMAGES), "boxes": boxes})
    done = apply.apply(source_block(0, 0, table), "infer", CropBoxes().build())
    assert blocks.live_rows(done)[0]["box"].to_pylist() == [[0, 0, 2, 1]]
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.FILTERED]
    done = cropped([[[0, None, 1, 1]], [[0, 0, 1, 1]]])
    assert done["__state"].to_pylist() == [blocks.QUARANTINED, blocks.LIVE]
    assert (
        done["__error_message"][0].as_py() == "crop_boxes: expected a box of four numbers, found [0.0, None, 1.0, 1.0]"
    )


def test_images_that_are_not_decoded_are_refused() -> None:
    table = pa.table({"row_id": ["a"], "image": [b"jpeg"], "boxes": pa.array([[]], BOXES)})
    with pytest.raises(ContractError, match="Put decode_image before it"):
        apply.apply(source_block(0, 0, table), "infer", CropBoxes().build())
