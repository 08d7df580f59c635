"""Speech models, with plain transformers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.speech import transcribed, write_whisper
from tests.tasks.preprocess.sounds import tone

SOUNDS = [tone(1.0)[None], tone(2.0, hertz=90)[None], tone(0.3, hertz=2000)[None]]


def whisper(is_multilingual: bool = True, **settings: str) -> Callable[[Path], Case]:
    def case(folder: Path) -> Case:
        write_whisper(folder, is_multilingual)
        plain = {"task": "transcribe", **settings} if is_multilingual else {}
        expected = [{"transcription": transcribed(folder, sound, **plain)} for sound in SOUNDS]
        columns = {"audio": SOUNDS, "sampling_rate": np.full(len(SOUNDS), 16_000)}
        return Case({"model": str(folder), **settings}, columns, expected)

    return case


TRANSCRIPTION = ModelLeaf(
    {
        "whisper": whisper(),
        "of one language": whisper(language="en"),
        "translated": whisper(language="de", task="translate"),
        "a model of English": whisper(is_multilingual=False),
    },
    column="audio",
    wrong=[
        (np.zeros((2, 100), np.float32), "one channel, found shape 2 x 100"),
        (np.zeros((1, 31 * 16_000), np.float32), "found 31.0 s. Set chunk_seconds: 30"),
    ],
)
