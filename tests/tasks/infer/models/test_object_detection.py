"""Object detection: what the suite of models does not hold."""

from pathlib import Path

import pyarrow as pa

from overnight.tasks.infer.models.object_detection import ObjectDetection
from tests.contracts.models.adapters.pictures import IMAGES
from tests.tasks.infer.detectors import write_detector


def test_rows_with_and_without_objects_have_columns_of_one_type(tmp_path: Path) -> None:
    write_detector(tmp_path, "yolos")
    made = [ObjectDetection(model=str(tmp_path), threshold=most).load()({"image": IMAGES}) for most in (0.0, 1.0)]
    assert [len(column) for columns in made for column in columns.values()] == [len(IMAGES)] * 6
    assert any(made[0]["labels"].to_pylist())
    assert not any(made[1]["labels"].to_pylist())
    assert [{name: column.type for name, column in columns.items()} for columns in made] == [
        {
            "boxes": pa.list_(pa.list_(pa.float32())),
            "labels": pa.list_(pa.string()),
            "scores": pa.list_(pa.float32()),
        }
    ] * 2
