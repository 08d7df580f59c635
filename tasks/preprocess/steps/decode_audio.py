"""Audio files, or the sound of videos, to arrays: one channel at one sampling rate, whole or in chunks.

Column in: `column` (files). Columns out: `audio` (float32 of shape 1 x samples, from -1 to 1), `sampling_rate` (int64),
`start_seconds` and `end_seconds` (float64). The bytes are dropped, except those of a whole file in a column that is not
`audio`. FFmpeg converts rates. Several channels become their mean, as in the training of speech models. With
`chunk_seconds` a file becomes several rows, whose `row_id` gets the chunk's number, from 0 (`talk.mp3#2`). A worker
holds a whole file in memory, 64 kB per second at 16 kHz.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.ffmpeg import load_av, opened, require_complete_file
from overnight.tasks.preprocess.file_rows import FileRows, expand_files
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result
from overnight.tasks.rows.column_effect import ColumnEffect

EXPECTED = "decode_audio: expected an audio file"
MOST_RATE = 3_000_000  # recordings have 768,000 at most; FFmpeg takes 10 s and 0.9 GB to convert 100 million per second
COLUMNS = {"sampling_rate": pa.int64(), "start_seconds": pa.float64(), "end_seconds": pa.float64()}


class DecodeAudio(PreprocessStep):
    """Decodes sound, whole or in chunks; a file that is cut off is quarantined alone."""

    kind: Literal["decode_audio"] = "decode_audio"
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
        if self.overlap_seconds and self.overlap_seconds * 2 > (self.chunk_seconds or 0):
            half = (self.chunk_seconds or 0) / 2
            raise ValueError(f"overlap_seconds: expected at most half of chunk_seconds ({half:g})")
        return self

    def libraries(self) -> tuple[str, ...]:
        return ("av",)

    def column_effect(self) -> ColumnEffect:
        gone = [self.column] if self.chunk_seconds else []
        return ColumnEffect([self.column], makes=["audio", *COLUMNS], removes=gone)

    def build(self) -> result.Work:
        av = load_av("decode_audio")
        kinds = pa.schema([("audio", pa.null()), *COLUMNS.items()])

        def decode(table: pa.Table) -> result.Outcome:
            made = expand_files(table, self.column, EXPECTED, kinds, lambda content, _: self._chunks(av, content))
            return made if self.chunk_seconds else result.one_each(made, len(table))

        return decode

    def _chunks(self, av: Any, content: bytes) -> FileRows:
        samples = np.concatenate(list(self._decoded(av, content)), axis=1)
        if not np.isfinite(samples).all():
            raise RowError(f"{EXPECTED}, found samples that are not finite numbers")
        rate, length = self.sampling_rate, samples.shape[1]
        size, overlap = (round((seconds or 0) * rate) for seconds in (self.chunk_seconds, self.overlap_seconds))
        starts = range(0, max(length - overlap, 1), max(size - overlap, 1)) if self.chunk_seconds else [0]
        stops = [min(start + (size if self.chunk_seconds else length), length) for start in starts]
        columns: dict[str, list[Any]] = {
            "audio": [samples[:, start:stop] for start, stop in zip(starts, stops, strict=True)],
            "sampling_rate": [rate] * len(starts),
            "start_seconds": [start / rate for start in starts],
            "end_seconds": [stop / rate for stop in stops],
        }
        return FileRows(range(len(starts)), columns)

    def _decoded(self, av: Any, content: bytes) -> Iterator[np.ndarray]:
        with opened(av, content, "audio", EXPECTED) as (container, stream):
            resampler = av.AudioResampler(format="flt", rate=self.sampling_rate)
            seconds, heard, count = 0.0, 0, 0
            for frame in container.decode(stream):
                if frame.sample_rate > MOST_RATE:
                    most = f"of at most {MOST_RATE:,} samples a second"
                    raise RowError(f"{EXPECTED} {most}, found one of {frame.sample_rate:,}")
                heard += frame.samples
                seconds += frame.samples / frame.sample_rate
                if seconds > self.max_seconds:
                    raise RowError(f"{EXPECTED} of at most max_seconds = {self.max_seconds:g}, found a longer one")
                for out in _resampled(resampler, frame):
                    count += out.samples
                    yield _mixed(out)
            for out in resampler.resample(None) if seconds else ():
                count += out.samples
                yield _mixed(out)
            if not heard:
                raise RowError(f"{EXPECTED}, found one without a single sample")
            if not count:
                rate = f"sampling_rate = {self.sampling_rate}"
                raise RowError(f"{EXPECTED}, found one of {heard} samples, too few to make some at {rate} of them")
            require_complete_file(stream, container, content, seconds, EXPECTED)


def _resampled(resampler: Any, frame: Any) -> list[Any]:
    try:
        found: list[Any] = resampler.resample(frame)
    except ValueError as error:  # PyAV's, for a frame of another format than the first
        raise RowError(f"{EXPECTED} of one sampling rate and the same channels throughout: {error}") from error
    return found


def _mixed(frame: Any) -> np.ndarray:
    """Return 1 x samples for channels packed into one plane.

    PyAV reads beyond the end if eight or more channels are separate planes. FFmpeg's own mix to one channel exceeds 1:
    it adds two channels at 0.7 each.
    """
    channels = frame.to_ndarray().reshape(frame.samples, -1).T
    return np.asarray(np.ascontiguousarray(channels).mean(axis=0, keepdims=True))
