"""Object detection, against transformers by hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.models.object_detection import ObjectDetection
from tests.tasks.infer.detectors import LABELS, assert_same, detected, write_detector


def images(*shapes: tuple[int, int]) -> np.ndarray:
    """Noise of these sizes, of low resolution so that a resized picture still tells it."""
    draw, found = np.random.default_rng(0), np.empty(len(shapes), object)
    for place, (height, width) in enumerate(shapes):
        coarse = draw.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
        found[place] = coarse.repeat(8, 0).repeat(8, 1)
    return found


@pytest.mark.parametrize("kind", ["yolos", "detr"])
def test_each_row_is_what_transformers_finds_in_it_alone(kind: str, tmp_path: Path) -> None:
    write_detector(tmp_path, kind)
    given = images((48, 64), (80, 40), (48, 64), (48, 64), (80, 40))
    every = [row for image in given for row in detected(tmp_path, image, 0.0)]
    threshold = float(np.median([score for _, score, _ in every]))
    found = pa.table(ObjectDetection(model=str(tmp_path), threshold=threshold).load()({"image": given})).to_pylist()
    counts = []
    for row, image in zip(found, given, strict=True):
        expected = detected(tmp_path, image, threshold)
        assert_same(row, expected)
        counts.append(len(expected))
    assert 0 < sum(counts) < len(every)
    assert set(found[0]["labels"]) <= set(LABELS)
    assert len({str(row["boxes"]) for row in found}) > 1


def test_a_row_without_objects_has_empty_lists_and_what_is_no_image_is_refused(tmp_path: Path) -> None:
    write_detector(tmp_path, "yolos")
    predict = ObjectDetection(model=str(tmp_path), threshold=1.0).load()
    assert pa.table(predict({"image": images((48, 64))})).to_pylist() == [{"boxes": [], "labels": [], "scores": []}]
    with pytest.raises(RowError, match=r"expected a uint8 array of H x W x 3, found float64 \(2, 2, 3\)"):
        predict({"image": np.zeros((1, 2, 2, 3))})
