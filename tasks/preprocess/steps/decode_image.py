"""Image files in a column to arrays: uint8 H x W x 3 RGB, and one stacked array if all sizes agree.

`images/decode.py` decodes each image. Rows that are decoded already pass unchanged. This file does not use the source
of the bytes.
"""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.preprocess.images.decode import MaxImagePixels, allow_pixels, decode_image
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, tensors
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.file_columns import EXPECTED, files_in, holds_files
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS


class DecodeImage(PreprocessStep):
    """Decodes a column of image files; a row that is not a whole image is quarantined alone."""

    kind: Literal["decode_image"] = "decode_image"
    column: Annotated[str, Field(description="The column with the encoded images.")] = "image"
    max_image_pixels: MaxImagePixels = MAX_IMAGE_PIXELS

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect([self.column], makes=[self.column])

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
            if not holds_files(encoded.type):
                raise ContractError(
                    f"decode_image: expected encoded images ({EXPECTED}) in column {self.column!r}, "
                    f"found {encoded.type}.",
                    "preprocess",
                )
            images: list[np.ndarray | None] = [None] * len(encoded)
            failed: dict[int, Exception] = {}
            for row, value in enumerate(files_in(encoded)):
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
