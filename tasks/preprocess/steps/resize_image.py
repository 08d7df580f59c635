"""Images to one size: files, or decoded uint8 H x W x 3 in; uint8 N x height x width x 3 out, one stacked array.

Files are decoded here one after another, so that only one has its original size in memory. With `decode: exact` the
algorithm is that of torchvision's `Resize` and `CenterCrop` and of the processors in transformers. Pillow scales the
image so that it covers the target (for a square: the shorter edge becomes `size`, the longer one `size * longer //
shorter`); smaller images grow. Then the middle is cut out, `(height - target) // 2` from the top, likewise from the
left (transformers rounds down there, torchvision to even). With `decode: fast` the algorithm is that of
`scaled_jpeg.py` and of OpenCV. It is more than twice as fast on photos, with other pixels (2 of 255 on average at 224).
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.preprocess.images.decode import MaxImagePixels, allow_pixels, decode_image
from overnight.tasks.preprocess.images.scaled_jpeg import decode_scaled
from overnight.tasks.preprocess.images.scaling import resize_image, shrink_image
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, tensors
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.file_columns import files_in, holds_files
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS


class ResizeImage(PreprocessStep):
    """Scales images to cover the size, keeping the aspect ratio, and crops the centre; decodes files first."""

    rows_at_once: ClassVar[int] = 64

    kind: Literal["resize_image"] = "resize_image"
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
    def _fast_has_its_own_filter(self) -> "ResizeImage":
        if self.decode == "fast" and "resample" in self.model_fields_set:
            raise ValueError("resample: decode: fast has its own filter. Leave one of them out")
        return self

    def inputs(self) -> list[str]:
        return [self.column]

    def libraries(self) -> tuple[str, ...]:
        return ("cv2",) if self.decode == "fast" else ()

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect([self.column], makes=[self.column])

    def build(self) -> result.Work:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        allow_pixels(self.max_image_pixels)
        if self.decode == "fast":
            cv2: Any = require_extra("cv2", "preprocess.kind: resize_image, decode: fast", "preprocess")
            cv2.setNumThreads(1)  # a worker is one thread; there are as many workers as CPUs

        def of_array(image: np.ndarray | None) -> np.ndarray:
            return resize_image(image, height, width, self.resample)

        def of_file(encoded: pa.Scalar) -> np.ndarray:
            if self.decode == "fast":
                return shrink_image(
                    decode_scaled(encoded.as_buffer(), height, width, self.max_image_pixels), height, width
                )
            return of_array(decode_image(encoded.as_buffer(), self.max_image_pixels))

        def resize(table: pa.Table) -> result.Outcome:
            images = self._images(table)
            is_decoded = images.type == tensors.TENSOR
            resized = np.zeros((len(table), height, width, 3), np.uint8)
            failed: dict[int, Exception] = {}
            one: Callable[[Any], np.ndarray] = of_array if is_decoded else of_file
            for row, image in enumerate(tensors.to_numpy(images) if is_decoded else images):
                try:
                    resized[row] = one(image)
                except RowError as error:
                    failed[row] = error
            return result.Outcome({self.column: resized}, failed=failed)

        return resize

    def _images(self, table: pa.Table) -> pa.ChunkedArray:
        if self.column not in table.column_names:
            raise ContractError(
                f"resize_image: expected a column {self.column!r}, found {', '.join(table.column_names)}.", "preprocess"
            )
        found = table[self.column]
        is_file = holds_files(found.type)
        if found.type != tensors.TENSOR and not is_file:
            raise ContractError(
                f"resize_image: expected images, decoded or as files, in column {self.column!r}, found {found.type}.",
                "preprocess",
            )
        if self.decode == "fast" and not is_file:
            raise ContractError(
                f"resize_image: decode: fast expects image files in column {self.column!r}, found decoded images. "
                "Put it first, without decode_image.",
                "preprocess",
            )
        return files_in(found) if is_file else found
