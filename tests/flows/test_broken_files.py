"""Documents, sounds and videos that are broken in ten ways each, in a job with whole ones: told apart, and told why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import RunJob, assert_quarantined, assert_settled
from tests.tasks.preprocess import pdfs, sounds, videos

CASES: dict[str, tuple[str, Callable[[], bytes], Callable[[], dict[str, tuple[bytes, str]]], list[dict[str, Any]]]] = {
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
    assert receipt["rows_out"] > 2
    assert_quarantined(tmp_path / "out", {f"{name}.{extension}": reason for name, (_, reason) in reasons.items()})
