"""Compare sounds with soundfile, which is libsndfile: the mean of the channels, at the file's own rate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ours
from judging import Refused
from kind import Kind, ends_in

from overnight.tasks.ingest.sources.media_files import Audio
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.rows import tensors

EXACT = ("PCM", "FLOAT", "DOUBLE", "ALAC", "ULAW", "ALAW")  # decoders of others differ by rounding
APART, LOSSY_APART = 2**-15, 0.02


Sound = tuple[float, np.ndarray]  # the tolerance, and the samples


def read(path: Path) -> list[Any]:
    """Return the samples."""
    rows = ours.read(Audio, path, [DecodeAudio(sampling_rate=_rate(path))])
    return [row if isinstance(row, Refused) else (_apart(path), tensors.to_numpy(row["audio"])[0][0]) for row in rows]


def by_soundfile(path: Path) -> Iterator[Any]:
    """Yield the samples."""
    import soundfile

    samples, _ = soundfile.read(path, dtype="float32", always_2d=True)
    if not len(samples):
        raise ValueError("no samples")
    yield _apart(path), samples.mean(axis=1)


def differs(mine: Sound, other: Sound) -> str:
    """Return the difference of the lengths, or the greatest difference of a sample, if it is above the tolerance."""
    (_, found), (most, expected) = mine, other
    if len(found) != len(expected):
        return f"expected {len(expected)} samples, found {len(found)}"
    apart = float(np.abs(found - expected).max())
    return f"samples differ by {apart:.3g}" if apart > most else ""


def _apart(path: Path) -> float:
    import soundfile

    try:
        return APART if soundfile.info(path).subtype.startswith(EXACT) else LOSSY_APART
    except soundfile.SoundFileError:
        return LOSSY_APART


def _rate(path: Path) -> int:
    import soundfile

    try:
        return int(soundfile.info(path).samplerate)
    except soundfile.SoundFileError:
        return 16_000


KIND = Kind("sounds", ("libsndfile",), ends_in(*Audio.extensions), read, by_soundfile, differs, "soundfile")
