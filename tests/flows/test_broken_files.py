"""Files of each kind that are broken in ten ways, in a job with whole ones: told apart, and told why."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published, quarantine
from tests.tasks.ingest.conftest import Read, assert_broken
from tests.tasks.ingest.sources import test_csv, test_jsonl, test_text, test_tfrecord
from tests.tasks.preprocess import pdfs, sounds, test_images, videos


def broken_images() -> dict[str, tuple[bytes, str]]:
    return {
        name: (found, re.escape(reason)) for name, (found, reason) in test_images.broken().items() if found is not None
    }


# A kind of file that is a row, or many: its extension, a whole one, broken ones with their reasons, steps.
CASES: dict[str, tuple[str, Callable[[], bytes], Callable[[], dict[str, tuple[bytes, str]]], list[dict[str, Any]]]] = {
    "images": (
        "png",
        lambda: test_images.encode(test_images.smooth(64, 64)),
        broken_images,
        [{"kind": "decode_image", "max_image_pixels": 1_000_000}],
    ),
    "pdf": (
        "pdf",
        lambda: pdfs.pdf([["one page"], ["and another"]]),
        lambda: pdfs.BROKEN,
        [{"kind": "pdf_text"}, {"kind": "split_text", "size": 80, "overlap": 20}],
    ),
    "audio": (
        "wav",
        lambda: sounds.wav(sounds.tone(5, 8_000, 440), 8_000),
        sounds.broken,
        [{"kind": "decode_audio", "chunk_seconds": 2}],
    ),
    "video": (
        "mp4",
        lambda: videos.video(20, "mp4", "mpeg4"),
        videos.broken,
        [{"kind": "sample_frames", "every_seconds": 0.75}],
    ),
}
# A kind of file of many rows: broken ones with the rows that are good all the same and the reason, and a whole one.
TABLES: dict[str, tuple[dict[str, tuple[bytes, int, str]], str, bytes]] = {
    "text": (test_text.NO_TEXTS, "whole.txt", b"well"),
    "jsonl": (test_jsonl.NO_FILES, "whole.jsonl", test_jsonl.MANY),
    "csv": (test_csv.NO_FILES, "a.csv", test_csv.numbers(10)),  # the first, which says what the columns are
    "tfrecord": (test_tfrecord.NO_FILES, "whole.tfrecord", test_tfrecord.WHOLE),
}
TOO_LONG = "too-long"  # for another limit than the default


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_broken_files_are_quarantined_each_for_its_reason(kind: str, tmp_path: Path, run_job: RunJob) -> None:
    extension, whole, broken, steps = CASES[kind]
    reasons = {name: case for name, case in broken().items() if name != TOO_LONG}
    assert len(reasons) >= 10
    (tmp_path / "in").mkdir()
    contents = {name: content for name, (content, _) in reasons.items()} | {"0": whole(), "1": whole()}
    for name, content in contents.items():
        (tmp_path / f"in/{name}.{extension}").write_bytes(content)
    job = {
        "name": "broken",
        "source": {"kind": kind, "path": str(tmp_path / "in")},
        "preprocess": steps,
        "checks": {"max_quarantined": 0.9},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=2)
    assert (receipt["rows_out"] > 2) == (kind != "images")
    assert_quarantined(tmp_path / "out", {f"{name}.{extension}": reason for name, (_, reason) in reasons.items()})


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_broken_files_of_rows_keep_their_good_ones_and_tell_why_the_others_are_lost(
    kind: str, tmp_path: Path, run_job: RunJob
) -> None:
    cases, whole, content = TABLES[kind]
    assert len(cases) >= 10
    (tmp_path / "in").mkdir()
    for name, (broken, *_) in cases.items():
        (tmp_path / "in" / name).write_bytes(broken)
    (tmp_path / "in" / whole).write_bytes(content)
    job = {
        "name": "broken",
        "source": {"kind": kind, "path": str(tmp_path / "in")},
        "checks": {"max_quarantined": 0.99},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert_settled(receipt)
    good = {row["row_id"]: row for row in published(receipt, tmp_path / "out").to_pylist()}
    bad = {row["row_id"]: row["error_message"] for row in quarantine(tmp_path / "out", "all")}
    assert_broken(Read(good, bad), cases)
    kept = sum(count for _, count, _ in cases.values())
    assert len(good) - kept == sum(row.rpartition("#")[0] in (whole, "") for row in good) > 0
