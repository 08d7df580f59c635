"""Images to one size: files, or decoded uint8 H x W x 3 in; uint8 N x height x width x 3 out, one stacked array.

Files are decoded here one after another, so that only one has its original size in memory. `decode: exact` gives the
pixels of torchvision's `Resize` and `CenterCrop` and of the processors in transformers, except that torchvision rounds
the crop's start to even. `decode: fast` is more than twice as fast on photos, with other pixels (2 of 255 on average at
224): see `images/scaling.py`.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.preprocess.images.decode import MaxImagePixels, allow_pixels, decode_image
from overnight.tasks.preprocess.images.scaling import decode_scaled, resize_image, shrink_image
from overnight.tasks.preprocess.input_columns import require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, tensors
from overnight.tasks.rows.arrow_types import files_in, holds_files
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS


class ResizeImage(PreprocessStep):
    """Scales images to cover the size, keeping the aspect ratio, and crops the centre; decodes files first."""

    rows_at_once: ClassVar[int] = 64

    kind: Literal["resize_image"] = "resize_image"

    can_be_remembered: ClassVar[bool] = True

    column: Annotated[str, Field(description="The column with the images, decoded or as files.")] = "image"
    size: Annotated[
        PositiveInt | tuple[PositiveInt, PositiveInt],
        Field(description="Pixels of a square's edge, or [height, width]."),
    ]
    resample: Annotated[
        Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"], Field(description="Pillow's filter.")
    ] = "bicubic"
    decode: Annotated[
        Literal["exact", "fast"],
        Field(
            description="exact: the pixels that Pillow gives. fast: JPEG files are scaled while they are decoded, "
            "which gives slightly other pixels."
        ),
    ] = "exact"
    max_image_pixels: MaxImagePixels = MAX_IMAGE_PIXELS

    @model_validator(mode="after")
    def _fast_has_its_own_filter(self) -> Self:
        if self.decode == "fast" and "resample" in self.model_fields_set:
            raise ValueError("resample: decode: fast has its own filter. Leave one of them out")
        return self

    def inputs(self) -> list[str]:
        return [self.column]

    def libraries(self) -> tuple[str, ...]:
        return ("cv2",) if self.decode == "fast" else ()

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect([self.column], makes=[self.column], media=[self.column])

    def build(self) -> result.Work:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        allow_pixels(self.max_image_pixels)
        if self.decode == "fast":
            cv2: Any = require_extra("cv2", "preprocess.kind: resize_image, decode: fast", "preprocess")
            cv2.setNumThreads(1)  # a worker is one thread; there are as many workers as CPUs

        def resize_one(image: np.ndarray | pa.Scalar | None) -> np.ndarray:
            if not isinstance(image, pa.Scalar):
                return resize_image(image, height, width, self.resample)
            if self.decode == "fast":
                small_image = decode_scaled(image.as_buffer(), height, width, self.max_image_pixels)
                return shrink_image(small_image, height, width)
            whole_image = decode_image(image.as_buffer(), self.max_image_pixels)
            return resize_image(whole_image, height, width, self.resample)

        def resize(table: pa.Table) -> result.Outcome:
            pixels = np.zeros((len(table), height, width, 3), np.uint8)
            errors: dict[int, Exception] = {}
            for row, image in enumerate(self._images(table)):
                try:
                    pixels[row] = resize_one(image)
                except RowError as error:
                    errors[row] = error
            return result.Outcome({self.column: pixels}, failed=errors)

        return resize

    def _images(self, table: pa.Table) -> np.ndarray | pa.ChunkedArray:
        """Return the images, decoded or as files. Raise `ContractError` for a column without them."""
        require_columns(table, [self.column], self.kind)
        column = table[self.column]
        if holds_files(column.type):
            return files_in(column)
        if column.type != tensors.TENSOR:
            raise ContractError(
                f"resize_image: expected images, decoded or as files, in column {self.column!r}, found {column.type}.",
                "preprocess",
            )
        if self.decode == "fast":
            raise ContractError(
                f"resize_image: decode: fast expects image files in column {self.column!r}, found decoded images. "
                "Put it first, without decode_image.",
                "preprocess",
            )
        return tensors.to_numpy(column)
