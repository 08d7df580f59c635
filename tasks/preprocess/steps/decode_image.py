"""A column of encoded images to arrays: binary in, uint8 H x W x 3 RGB out, a stacked array where all sizes agree.

`images/decode.py` decodes each. Rows that are decoded already pass untouched. This file does not know where the bytes
come from.
"""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from pyarrow import types
from pydantic import Field

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.preprocess.images.decode import MAX_IMAGE_PIXELS, MaxImagePixels, allow_pixels, decode_image
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, tensors


class DecodeImage(PreprocessStep):
    """Decodes a column of image files; a row that is not a whole image is quarantined alone."""

    kind: Literal["decode_image"] = "decode_image"
    column: Annotated[str, Field(description="The column with the encoded images.")] = "image"
    max_image_pixels: MaxImagePixels = MAX_IMAGE_PIXELS

    def build(self) -> result.Work:
        allow_pixels(self.max_image_pixels)

        def decode(table: pa.Table) -> result.Outcome:
            if self.column not in table.column_names:
                raise ContractError(
                    f"decode_image: expected a column {self.column!r}, found {', '.join(table.column_names)}.",
                    "preprocess",
                )
            encoded = table[self.column]
            if encoded.type == tensors.TENSOR:
                return result.Outcome()
            if not types.is_binary(encoded.type) and not types.is_large_binary(encoded.type):
                raise ContractError(
                    f"decode_image: expected encoded images (binary) in column {self.column!r}, found {encoded.type}.",
                    "preprocess",
                )
            images: list[np.ndarray | None] = [None] * len(encoded)
            failed: dict[int, Exception] = {}
            for row, value in enumerate(encoded):
                try:
                    images[row] = decode_image(value.as_buffer(), self.max_image_pixels)
                except RowError as error:
                    failed[row] = error
            return result.Outcome({self.column: _column(images)}, failed=failed)

        return decode


def _column(images: list[np.ndarray | None]) -> tensors.Column:
    if all(image is None for image in images):
        return pa.nulls(len(images), tensors.TENSOR)
    if len({None if image is None else image.shape for image in images}) == 1:
        return np.stack(images)  # type: ignore[arg-type]
    return images
