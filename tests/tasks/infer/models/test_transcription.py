"""Transcription, against transformers by hand."""

from pathlib import Path

import numpy as np
import pytest

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.infer.models.transcription import Transcription
from tests.tasks.infer.speech import transcribed, write_whisper
from tests.tasks.preprocess.sounds import tone

SOUNDS = [tone(1.0)[None], tone(2.0, hertz=90)[None], tone(0.3, hertz=2000)[None]]


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder)
    return folder


def batch(sounds: list, rate: int = 16_000) -> dict[str, np.ndarray]:
    audio = np.empty(len(sounds), object)
    audio[:] = sounds
    return {"audio": audio, "sampling_rate": np.full(len(sounds), rate)}


@pytest.mark.parametrize("settings", [{"language": "en"}, {"language": "de", "task": "translate"}, {}])
def test_each_row_is_what_transformers_writes_of_it_alone(whisper: Path, settings: dict) -> None:
    found = Transcription(model=str(whisper), **settings).load()(batch(SOUNDS))
    expected = [transcribed(whisper, sound, **{"task": "transcribe", **settings}) for sound in SOUNDS]
    assert found == {"transcription": expected}
    assert len(set(expected)) > 1
    assert all(expected)


def test_what_the_model_cannot_hear_is_told_of_the_row(whisper: Path) -> None:
    predict = Transcription(model=str(whisper), language="en").load()
    with pytest.raises(RowError, match=r"at most 30 s.*found 31\.0 s\. Set chunk_seconds: 30 in decode_audio"):
        predict(batch([np.zeros((1, 31 * 16_000), np.float32)]))
    with pytest.raises(RowError, match="one channel, found shape 2 x 100"):
        predict(batch([np.zeros((2, 100), np.float32)]))
    with pytest.raises(RowError, match="one channel, found no value"):
        predict(batch([None]))
    with pytest.raises(ContractError, match=r"expected 16000 samples per second.*found 8000"):
        predict(batch(SOUNDS, 8000))


def test_a_language_or_task_that_the_model_does_not_know_is_refused(whisper: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="language: expected one of de, en, found tlh"):
        Transcription(model=str(whisper), language="tlh").load()
    write_whisper(tmp_path, is_multilingual=False)
    with pytest.raises(JobError, match="it supports English only"):
        Transcription(model=str(tmp_path), task="translate").load()
    found = Transcription(model=str(tmp_path), language="en").load()(batch(SOUNDS[:1]))
    assert found == {"transcription": [transcribed(tmp_path, SOUNDS[0])]}
