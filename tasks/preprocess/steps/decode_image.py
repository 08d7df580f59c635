"""Image files in a column to arrays: uint8 H x W x 3 RGB, and one stacked array if all sizes agree.

Rows that are decoded already pass unchanged.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.images.decode import MaxImagePixels, allow_pixels, decode_image
from overnight.tasks.preprocess.input_columns import files_of, require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, tensors
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS


class DecodeImage(PreprocessStep):
    """Decodes a column of image files; a row that is not a whole image is quarantined alone."""

    kind: Literal["decode_image"] = "decode_image"

    can_be_remembered: ClassVar[bool] = True

    column: Annotated[str, Field(description="The column with the encoded images.")] = "image"
    max_image_pixels: MaxImagePixels = MAX_IMAGE_PIXELS

    def column_effect(self) -> ColumnEffect:
        return ColumnEffect([self.column], makes=[self.column], media=[self.column])

    def build(self) -> result.Work:
        allow_pixels(self.max_image_pixels)

        def decode(table: pa.Table) -> result.Outcome:
            require_columns(table, [self.column], self.kind)
            if table[self.column].type == tensors.TENSOR:
                return result.Outcome()
            images: list[np.ndarray | None] = [None] * len(table)
            errors: dict[int, Exception] = {}
            for row, file in enumerate(files_of(table, self.column, "decode_image: expected encoded images")):
                try:
                    images[row] = decode_image(file.as_buffer(), self.max_image_pixels)
                except RowError as error:
                    errors[row] = error
            column: tensors.Column = images
            if len(errors) == len(images):
                column = pa.nulls(len(images), tensors.TENSOR)
            elif not errors and len({image.shape for image in images if image is not None}) == 1:
                column = np.stack(images)  # type: ignore[arg-type]
            return result.Outcome({self.column: column}, failed=errors)

        return decode
