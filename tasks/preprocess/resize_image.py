"""Decoded images to one size: uint8 H x W x 3 (tensors) in, uint8 N x height x width x 3 out, one stacked array.

The algorithm is that of torchvision's `Resize` and `CenterCrop` and of the processors in transformers: Pillow scales
the image so that it covers the target (for a square: the shorter edge becomes `size`, the longer one
`size * longer // shorter`), smaller images upwards too; then the middle is cut out, `(height - target) // 2` from the
top, likewise from the left (transformers rounds down there, torchvision to even).
"""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from tasks import arrays, rows
from tasks.errors import ContractError, RowError
from tasks.preprocess.step import PreprocessStep

# A strip whose scaled size is so many times its crop is cropped while it is scaled: 1 x 100,000 pixels would become
# 15 GB. Elsewhere cropping afterwards is kept, since Pillow rounds between its two passes and orders them by size.
LARGEST_CROP = 64


class ResizeImage(PreprocessStep):
    """Scales to cover the size, keeping the aspect ratio, and crops the centre."""

    kind: Literal["resize_image"] = "resize_image"
    column: Annotated[str, Field(description="The column with the decoded images.")] = "image"
    size: Annotated[
        PositiveInt | tuple[PositiveInt, PositiveInt],
        Field(description="Pixels of a square's edge, or [height, width]."),
    ]
    resample: Annotated[
        Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"], Field(description="Pillow's filter.")
    ] = "bicubic"

    def build(self) -> rows.Work:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)

        def resize(table: pa.Table) -> rows.Outcome:
            if self.column not in table.column_names:
                raise ContractError(
                    f"resize_image: expected a column {self.column!r}, found {', '.join(table.column_names)}.",
                    "preprocess",
                )
            if table[self.column].type != arrays.TENSOR:
                raise ContractError(
                    f"resize_image: expected decoded images in column {self.column!r}, "
                    f"found {table[self.column].type}. Put decode_image before it.",
                    "preprocess",
                )
            resized = np.zeros((len(table), height, width, 3), np.uint8)
            failed: dict[int, Exception] = {}
            for row, image in enumerate(arrays.to_numpy(table[self.column])):
                try:
                    resized[row] = resize_image(image, height, width, self.resample)
                except RowError as error:
                    failed[row] = error
            return rows.Outcome({self.column: resized}, failed=failed)

        return resize


def resize_image(image: np.ndarray | None, height: int, width: int, resample: str) -> np.ndarray:
    """uint8 height x width x 3 of a uint8 image of any size. Raises `RowError` for any other array."""
    from PIL import Image

    if image is None:
        raise RowError("expected an image, found null")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        shape = " x ".join(str(length) for length in image.shape)
        raise RowError(f"expected an image of uint8 H x W x 3, found {image.dtype} {shape}")
    scaled_height, scaled_width = covering_size(image.shape[0], image.shape[1], height, width)
    top, left = (scaled_height - height) // 2, (scaled_width - width) // 2
    filter_ = Image.Resampling[resample.upper()]
    if scaled_height * scaled_width > LARGEST_CROP * height * width:
        across, down = image.shape[1] / scaled_width, image.shape[0] / scaled_height
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        return np.asarray(Image.fromarray(image).resize((width, height), filter_, box))
    scaled = Image.fromarray(image).resize((scaled_width, scaled_height), filter_)
    return np.asarray(scaled)[top : top + height, left : left + width]


def covering_size(height: int, width: int, target_height: int, target_width: int) -> tuple[int, int]:
    """Height and width of the smallest image of the same shape that covers the target."""
    if target_height * width >= target_width * height:
        return target_height, target_height * width // height
    return target_width * height // width, target_width
