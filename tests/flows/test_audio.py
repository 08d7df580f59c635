"""Audio files to text from a job file, against PyAV and transformers by hand."""

from pathlib import Path

import numpy as np
import pytest

from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published
from tests.tasks.infer.speech import transcribed, write_whisper
from tests.tasks.preprocess.sounds import broken, plain, tone, wav


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tones", "spoken digits"])
def test_what_is_said_in_files_is_written_down_chunk_by_chunk_as_by_hand(
    kind: str, tmp_path: Path, run_job: RunJob, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "in").mkdir()
    if kind == "tones":
        for number in range(6):
            (tmp_path / f"in/{number}.wav").write_bytes(wav(tone(0.4 + number, 8_000, 50.0 + 90 * number), 8_000))
        bad = {name: case for name, case in broken().items() if name not in ("too-long", "header-only")}
        for name, (content, _) in bad.items():
            (tmp_path / f"in/{name}.wav").write_bytes(content)
    else:
        bad = {}
        digits = sorted((request.getfixturevalue("shared_data") / "spoken-digits").glob("*.wav"))
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
        "checks": {"max_quarantined": 0.9},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 4},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=receipt["rows_written"])
    assert_quarantined(tmp_path / "out", {f"{name}.wav": reason for name, (_, reason) in bad.items()})
    expected = {}
    for path in (tmp_path / "in").glob("[0-9].wav"):
        samples = plain(path.read_bytes())[0]
        starts = [at for at in range(0, len(samples), 24_000) if at == 0 or at + 8_000 < len(samples)]
        for number, start in enumerate(starts):
            piece = samples[start : start + 32_000]
            seconds = (start / 16_000, (start + len(piece)) / 16_000)
            text = transcribed(tmp_path / "model", piece, language="en", task="transcribe")
            expected[f"{path.name}#{number}"] = (*seconds, text)
    table = published(receipt, tmp_path / "out")
    found = {
        row["row_id"]: (row["start_seconds"], row["end_seconds"], row["transcription"]) for row in table.to_pylist()
    }
    assert found == expected
    assert receipt["rows_out"] == len(expected) > receipt["rows_written"] > 3
    assert "audio" not in table.column_names
