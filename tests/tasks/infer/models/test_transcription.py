"""Transcription: what the suite of models does not hold."""

from pathlib import Path

import numpy as np
import pytest

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.models.transcription import Transcription
from tests.contracts.models.adapters.sounds import SOUNDS
from tests.tasks.infer.speech import write_whisper


def test_what_the_model_was_not_trained_for_is_refused(tmp_path: Path) -> None:
    write_whisper(tmp_path)
    with pytest.raises(JobError, match="language: expected one of de, en, found tlh"):
        Transcription(model=str(tmp_path), language="tlh").load()
    audio = np.empty(1, object)
    audio[0] = SOUNDS[0]
    with pytest.raises(ContractError, match=r"expected 16000 samples per second.*found 8000"):
        Transcription(model=str(tmp_path)).load()({"audio": audio, "sampling_rate": np.array([8000])})
    write_whisper(tmp_path, is_multilingual=False)
    with pytest.raises(JobError, match="it supports English only"):
        Transcription(model=str(tmp_path), task="translate").load()
