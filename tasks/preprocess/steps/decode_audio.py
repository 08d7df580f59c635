"""Audio files, or the sound of videos, to arrays: one channel at one sampling rate, whole or in chunks.

Column in: `column` (files). Columns out: `audio` (float32 of shape 1 x samples, from -1 to 1), `sampling_rate` (int64),
`start_seconds` and `end_seconds` (float64). Several channels become their mean, as in the training of speech models.
With `chunk_seconds` a file becomes several rows, whose `row_id` gets the chunk's number, from 0 (`talk.mp3#2`). A
worker holds a whole file in memory, 64 kB per second at 16 kHz.
"""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.ffmpeg import load_av, opened, require_complete_file
from overnight.tasks.preprocess.input_columns import FileRows, expand_files
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result
from overnight.tasks.rows.column_effect import ColumnEffect

EXPECTED = "decode_audio: expected an audio file"
# recordings have 768,000 at most; FFmpeg takes 10 s and 0.9 GB to convert 100 million per second
MOST_RATE = 3_000_000
COLUMNS = {"sampling_rate": pa.int64(), "start_seconds": pa.float64(), "end_seconds": pa.float64()}


class DecodeAudio(PreprocessStep):
    """Decodes sound, whole or in chunks; a file that is cut off is quarantined alone."""

    kind: Literal["decode_audio"] = "decode_audio"

    can_be_remembered: ClassVar[bool] = True

    column: Annotated[str, Field(description="The column with the files; for videos: video.")] = "audio"
    sampling_rate: Annotated[PositiveInt, Field(description="Samples per second.")] = 16_000
    chunk_seconds: Annotated[
        PositiveFloat | None,
        Field(description="Makes a row of each stretch of this length; default: one row per file."),
    ] = None
    overlap_seconds: Annotated[float, Field(ge=0, description="Seconds that a chunk shares with the next.")] = 0
    max_seconds: Annotated[PositiveFloat, Field(description="Files of more seconds are quarantined.")] = 14_400

    rows_at_once = 1

    @model_validator(mode="after")
    def _overlap_leaves_half(self) -> Self:
        half = (self.chunk_seconds or 0) / 2
        if self.overlap_seconds > half:
            raise ValueError(f"overlap_seconds: expected at most half of chunk_seconds ({half:g})")
        return self

    def libraries(self) -> tuple[str, ...]:
        return ("av",)

    def column_effect(self) -> ColumnEffect:
        removes = [self.column] if self.chunk_seconds else []
        return ColumnEffect([self.column], makes=["audio", *COLUMNS], removes=removes, media=["audio"])

    def build(self) -> result.Work:
        av = load_av("decode_audio")
        schema = pa.schema([("audio", pa.null()), *COLUMNS.items()])

        def decode(table: pa.Table) -> result.Outcome:
            outcome = expand_files(table, self.column, EXPECTED, schema, lambda file, _: self._chunks(av, file))
            return outcome if self.chunk_seconds else result.one_each(outcome, len(table))

        return decode

    def _chunks(self, av: Any, file: bytes) -> FileRows:
        samples = np.concatenate(list(self._samples(av, file)), axis=1)
        if not np.isfinite(samples).all():
            raise RowError(f"{EXPECTED}, found samples that are not finite numbers")
        rate, length = self.sampling_rate, samples.shape[1]
        starts, size = range(1), length
        if self.chunk_seconds:
            size, overlap = round(self.chunk_seconds * rate), round(self.overlap_seconds * rate)
            starts = range(0, max(length - overlap, 1), max(size - overlap, 1))
        columns: dict[str, list[Any]] = {"audio": [], "sampling_rate": [], "start_seconds": [], "end_seconds": []}
        for start in starts:
            end = min(start + size, length)
            columns["audio"].append(samples[:, start:end])
            columns["sampling_rate"].append(rate)
            columns["start_seconds"].append(start / rate)
            columns["end_seconds"].append(end / rate)
        return FileRows(range(len(starts)), columns)

    def _samples(self, av: Any, file: bytes) -> Iterator[np.ndarray]:
        with opened(av, file, "audio", EXPECTED) as (container, stream):
            resampler = av.AudioResampler(format="flt", rate=self.sampling_rate)
            seconds, input_samples, output_samples = 0.0, 0, 0
            # None: the end of the sound
            for frame in itertools.chain(container.decode(stream), [None]):
                if frame is not None:
                    input_samples += frame.samples
                    seconds += frame.samples / frame.sample_rate
                    self._refuse_large(frame.sample_rate, seconds)
                if frame is None and not seconds:
                    break
                for part in _resampled(resampler, frame):
                    output_samples += part.samples
                    yield _mixed(part)
            if not input_samples:
                raise RowError(f"{EXPECTED}, found one without a single sample")
            if not output_samples:
                rate = f"sampling_rate = {self.sampling_rate}"
                raise RowError(
                    f"{EXPECTED}, found one of {input_samples} samples, too few to make some at {rate} of them"
                )
            require_complete_file(stream, container, file, seconds, EXPECTED)

    def _refuse_large(self, rate: int, seconds: float) -> None:
        if rate > MOST_RATE:
            raise RowError(f"{EXPECTED} of at most {MOST_RATE:,} samples a second, found one of {rate:,}")
        if seconds > self.max_seconds:
            raise RowError(f"{EXPECTED} of at most max_seconds = {self.max_seconds:g}, found a longer one")


def _resampled(resampler: Any, frame: Any) -> list[Any]:
    try:
        return list(resampler.resample(frame))
    except ValueError as error:  # PyAV's, for a frame of another format than the first
        raise RowError(f"{EXPECTED} of one sampling rate and the same channels throughout: {error}") from error


def _mixed(frame: Any) -> np.ndarray:
    """Return 1 x samples for channels packed into one plane. FFmpeg's own mix exceeds 1: it adds channels at 0.7.

    PyAV reads beyond the end if eight or more channels are separate planes.
    """
    channels = frame.to_ndarray().reshape(frame.samples, -1).T
    return np.asarray(np.ascontiguousarray(channels).mean(axis=0, keepdims=True))
