"""Real speech to text from a job file, against PyAV and transformers by hand."""

from pathlib import Path

import numpy as np
import pytest

from tests.flows.by_hand import spoken
from tests.flows.conftest import RunJob, assert_settled, published
from tests.tasks.infer.speech import write_whisper
from tests.tasks.preprocess.sounds import plain, wav


@pytest.mark.slow
def test_spoken_digits_are_written_down_chunk_by_chunk_as_by_hand(
    tmp_path: Path, run_job: RunJob, shared_data: Path
) -> None:
    (tmp_path / "in").mkdir()
    digits = sorted((shared_data / "spoken-digits").glob("*.wav"))
    said = [plain(path.read_bytes(), 8_000)[0] for path in digits]
    for number in range(4):
        (tmp_path / f"in/{number}.wav").write_bytes(wav(np.concatenate(said[number::4][: 3 * number + 1]), 8_000))
    write_whisper(tmp_path / "model")
    model = {"kind": "transcription", "model": str(tmp_path / "model"), "language": "en", "batch_size": 4}
    job = {
        "name": "speech",
        "source": {"kind": "audio", "path": str(tmp_path / "in")},
        "preprocess": [{"kind": "decode_audio", "chunk_seconds": 2, "overlap_seconds": 0.5}],
        "inference": [model],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 4},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=receipt["rows_written"])
    expected = dict(spoken(tmp_path / "in", tmp_path / "model", seconds=2, overlap=0.5))
    table = published(receipt, tmp_path / "out").drop(["uri"])
    assert {row.pop("row_id"): row for row in table.to_pylist()} == expected
    assert receipt["rows_out"] == len(expected) > receipt["rows_written"] > 3
