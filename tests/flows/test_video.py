"""Videos to objects in their frames from a job file, against PyAV and transformers by hand."""

from pathlib import Path

import numpy as np
import pytest

from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published
from tests.tasks.infer.detectors import assert_same, detected, write_detector
from tests.tasks.preprocess.videos import broken, plain, video


@pytest.mark.slow
def test_objects_are_found_in_the_frames_of_videos_as_by_hand(tmp_path: Path, run_job: RunJob) -> None:
    write_detector(tmp_path / "model", "yolos")
    (tmp_path / "in").mkdir()
    for number in range(6):
        content = video(8 + 10 * number, *[("mp4", "mpeg4"), ("webm", "libvpx")][number % 2], width=64 + 16 * number)
        (tmp_path / f"in/{number}.mp4").write_bytes(content)
    expected = {
        f"{number}.mp4#{frame}": (seconds, image)
        for number in range(6)
        for frame, seconds, image in plain((tmp_path / f"in/{number}.mp4").read_bytes(), 0.75)
    }
    every = [found for _, image in expected.values() for found in detected(tmp_path / "model", image, 0.0)]
    threshold = float(np.median([score for _, score, _ in every]))
    bad = {name: case for name, case in broken().items() if name != "too-long"}
    for name, (content, _) in bad.items():
        (tmp_path / f"in/{name}.mp4").write_bytes(content)
    job = {
        "name": "frames",
        "source": {"kind": "video", "path": str(tmp_path / "in")},
        "preprocess": [{"kind": "sample_frames", "every_seconds": 0.75}],
        "inference": [{"kind": "object_detection", "model": str(tmp_path / "model"), "threshold": threshold}],
        "checks": {"max_quarantined": 0.8},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 4},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=6)
    assert receipt["rows_written"] == 6
    assert_quarantined(tmp_path / "out", {f"{name}.mp4": reason for name, (_, reason) in bad.items()})
    table = published(receipt, tmp_path / "out")
    assert set(table.column_names) == {"row_id", "uri", "frame", "seconds", "boxes", "labels", "scores"}
    assert receipt["rows_out"] == len(table) == len(expected) > 20
    objects = 0
    for row in table.to_pylist():
        seconds, image = expected.pop(row["row_id"])
        assert row["seconds"] == pytest.approx(seconds)
        assert_same(row, detected(tmp_path / "model", image, threshold))
        objects += len(row["labels"])
    assert 0 < objects < len(every)
