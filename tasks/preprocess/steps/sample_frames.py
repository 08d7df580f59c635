"""Video files to pictures: one row for each selected frame, by time.

Column in: `column` (files). Columns out: `image` (uint8 H x W x 3, RGB and upright), `frame` (int64, its number in the
file, from 0) and `seconds` (float64, since the first frame). `row_id` gets the frame's number: `clip.mp4#312`. The
first frame of every `every_seconds` is selected. Memory holds all selected frames of a file, 0.9 MB each at 640 x 480.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.ffmpeg import load_av, opened, require_complete_file
from overnight.tasks.preprocess.images.decode import MaxImagePixels
from overnight.tasks.preprocess.input_columns import FileRows, expand_files
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS

EXPECTED = "sample_frames: expected a video file"
COLUMNS = pa.schema([("image", pa.null()), ("frame", pa.int64()), ("seconds", pa.float64())])
ROUNDING_SECONDS = 1e-6
PADDING_PIXELS = 2**20  # FFmpeg, whose limit bounds its memory, counts its own rows and columns


class SampleFrames(PreprocessStep):
    """Makes one row per selected frame of a video."""

    kind: Literal["sample_frames"] = "sample_frames"

    can_be_remembered: ClassVar[bool] = True

    column: Annotated[str, Field(description="The column with the videos.")] = "video"
    every_seconds: Annotated[
        PositiveFloat | None, Field(description="Takes one frame in each stretch of this length.")
    ] = None
    frames_per_second: Annotated[PositiveFloat | None, Field(description="Takes this number of frames per second.")] = (
        None
    )
    longest_side: Annotated[
        PositiveInt | None,
        Field(description="Larger frames are scaled down until their longer side has this number of pixels."),
    ] = None
    max_frames: Annotated[PositiveInt, Field(description="A file that would give more frames is quarantined.")] = 1000
    max_image_pixels: MaxImagePixels = MAX_IMAGE_PIXELS

    rows_at_once = 1

    @model_validator(mode="after")
    def _one_interval(self) -> Self:
        if (self.every_seconds is None) == (self.frames_per_second is None):
            raise ValueError("expected either every_seconds or frames_per_second")
        return self

    def libraries(self) -> tuple[str, ...]:
        return ("av",)

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect([self.column], makes=COLUMNS.names, removes=[self.column], media=["image"])

    def build(self) -> result.Work:
        av = load_av("sample_frames")

        def sample(table: pa.Table) -> result.Outcome:
            return expand_files(table, self.column, EXPECTED, COLUMNS, lambda file, _: self._rows(av, file))

        return sample

    def _rows(self, av: Any, file: bytes) -> FileRows:
        columns: dict[str, list[Any]] = {"frame": [], "seconds": [], "image": []}
        for number, seconds, image in self._frames(av, file):
            columns["frame"].append(number)
            columns["seconds"].append(seconds)
            columns["image"].append(image)
        return FileRows(columns["frame"], columns)

    def _frames(self, av: Any, file: bytes) -> Iterator[tuple[int, float, np.ndarray]]:
        """Yield number, seconds and picture of each selected frame. All frames are decoded, so that damage is found."""
        interval = self.every_seconds or 1 / (self.frames_per_second or 1)
        limit = {"max_pixels": str(self.max_image_pixels + PADDING_PIXELS)}
        with opened(av, file, "video", EXPECTED, limit) as (container, stream):
            if stream.codec_context:
                self._refuse_large(stream.codec_context.width, stream.codec_context.height)
            if "_pipe" in container.format.name:
                raise RowError(f"{EXPECTED}, found a picture ({container.format.name.removesuffix('_pipe')})")
            first, next_seconds, count, end = None, 0.0, 0, 0.0
            for number, frame in enumerate(container.decode(stream)):
                _refuse_damaged(frame, number)
                # players stretch the width of pixels that are not square
                aspect = stream.sample_aspect_ratio or 1
                width, height = max(round(frame.width * aspect), 1), frame.height
                self._refuse_large(width, height)
                if first is None:
                    first = frame.time
                seconds = frame.time - first
                end = max(end, seconds + float((frame.duration or 0) * frame.time_base))
                if seconds < next_seconds - ROUNDING_SECONDS:
                    continue
                next_seconds = (math.floor((seconds + ROUNDING_SECONDS) / interval) + 1) * interval
                count += 1
                if count > self.max_frames:
                    most = f"of at most max_frames = {self.max_frames} frames, one every {interval:g} s"
                    raise RowError(f"{EXPECTED} {most}, found a longer one")
                yield number, seconds, self._picture(frame, width, height)
            if first is None:
                raise RowError(f"{EXPECTED}, found one without a single frame")
            require_complete_file(stream, container, file, end, EXPECTED)

    def _refuse_large(self, width: int, height: int) -> None:
        if width * height > self.max_image_pixels:
            most = f"of at most max_image_pixels = {self.max_image_pixels} pixels a frame"
            raise RowError(f"{EXPECTED} {most}, found {width} x {height}")

    def _picture(self, frame: Any, width: int, height: int) -> np.ndarray:
        if self.longest_side and max(width, height) > self.longest_side:
            scale = self.longest_side / max(width, height)
            width, height = max(round(width * scale), 1), max(round(height * scale), 1)
        return _upright(frame.to_ndarray(format="rgb24", width=width, height=height), frame)


def _refuse_damaged(frame: Any, number: int) -> None:
    if frame.time is None:
        raise RowError(f"{EXPECTED} that is whole, found that frame {number} has no time")
    if frame.is_corrupt:
        raise RowError(f"{EXPECTED} that is whole, found that frame {number} is damaged")


def _upright(image: np.ndarray, frame: Any) -> np.ndarray:
    """Return the image turned and mirrored as the file declares it. Phones and front cameras do so.

    The matrix moves a pixel from x, y to a * x + c * y, b * x + d * y: ISO/IEC 14496-12, 6.2.2.
    """
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return image
    a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].tolist()
    across, down = a, d
    if abs(a) + abs(d) < abs(b) + abs(c):
        image, across, down = image.transpose(1, 0, 2), c, b
    if across < 0:
        image = image[:, ::-1]
    if down < 0:
        image = image[::-1]
    return np.ascontiguousarray(image)
