"""Object detection: what the suite of models does not hold."""

from pathlib import Path

import pyarrow as pa

from overnight.tasks.infer.models.object_detection import ObjectDetection
from tests.contracts.models.adapters.pictures import IMAGES
from tests.tasks.infer.detectors import write_detector


def test_columns_have_one_type_with_and_without_objects(tmp_path: Path) -> None:
    write_detector(tmp_path, "yolos")
    kinds = {"boxes": pa.list_(pa.float32()), "labels": pa.string(), "scores": pa.float32()}
    for threshold, has_objects in ((0.0, True), (1.0, False)):
        made = ObjectDetection(model=str(tmp_path), threshold=threshold).load()({"image": IMAGES})
        assert {name: column.type for name, column in made.items()} == {n: pa.list_(kind) for n, kind in kinds.items()}
        assert any(made["labels"].to_pylist()) == has_objects
