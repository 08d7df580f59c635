"""Make a row of each box of an image. Its image is the content of the box.

Columns in: `image`, uint8 H x W x 3, and `boxes`, a list of boxes for each row. A box has left, top, right and bottom
in pixels, as `object_detection` writes them. Columns out: the crop in the image's place, and `box` (four float32). The
lists `labels` and `scores` become `label` and `score`. A prefix of the boxes, such as `found_boxes`, stays. `row_id`
gets the box's number, from 0. A row without a box counts as filtered.
"""

from typing import Annotated, Any, Literal, TypeGuard

import numpy as np
import pyarrow as pa
from pyarrow import types
from pydantic import Field, field_validator

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.preprocess.input_columns import lists_in, numbered, require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result, tensors
from overnight.tasks.rows.arrow_types import is_list
from overnight.tasks.rows.column_effect import ColumnEffect

# the lists of a detection, and the names of their entries
BESIDE = {"labels": "label", "scores": "score"}


class CropBoxes(PreprocessStep):
    """Makes a row of each box of an image."""

    kind: Literal["crop_boxes"] = "crop_boxes"
    boxes: Annotated[str, Field(description="The column with the boxes; its name ends with boxes.")] = "boxes"
    image: Annotated[str, Field(description="The column with the images, decoded.")] = "image"

    @field_validator("boxes")
    @classmethod
    def _ends_with_boxes(cls, boxes: str) -> str:
        if not boxes.endswith("boxes"):
            raise ValueError(f"expected a column whose name ends with boxes, found {boxes!r}. Rename it first.")
        return boxes

    def _beside(self) -> dict[str, str]:
        """Return the names of the optional lists of a detection, and of their entries."""
        prefix = self.boxes.removesuffix("boxes")
        return {prefix + plural: prefix + singular for plural, singular in BESIDE.items()}

    def inputs(self) -> list[str]:
        return [self.image, self.boxes, *self._beside()]

    def column_effect(self) -> ColumnEffect:
        makes = [self.image, self.boxes.removesuffix("es"), *self._beside().values()]
        removes = [self.boxes, *self._beside()]
        return ColumnEffect([self.image, self.boxes], makes=makes, removes=removes, media=[self.image])

    def build(self) -> result.Work:
        return self._crop

    def _crop(self, table: pa.Table) -> result.Outcome:
        require_columns(table, [self.image, self.boxes], self.kind)
        if table[self.image].type != tensors.TENSOR:
            raise ContractError(
                f"crop_boxes: expected decoded images in column {self.image!r}, found {table[self.image].type}. "
                "Put decode_image before it.",
                "preprocess",
            )
        beside = {name: single for name, single in self._beside().items() if name in table.column_names}
        lists = {name: lists_in(table, name, self.kind) for name in beside}
        crops: list[np.ndarray] = []
        boxes: list[Any] = []
        counts = np.zeros(len(table), np.int64)
        entries: dict[str, list[Any]] = {name: [] for name in beside}
        errors: dict[int, Exception] = {}
        images = tensors.to_numpy(table[self.image])
        boxes_by_row = _boxes(table[self.boxes], self.boxes)
        for row, (image, row_boxes) in enumerate(zip(images, boxes_by_row, strict=True)):
            try:
                row_crops = [_cut(image, box) for box in row_boxes]
                row_entries = {name: _entries(lists[name][row].as_py(), len(row_boxes), name) for name in beside}
            except RowError as error:
                errors[row] = error
                continue
            counts[row] = len(row_boxes)
            crops += row_crops
            boxes += row_boxes
            for name, values in row_entries.items():
                entries[name] += values
        columns = {
            self.image: tensors.to_arrow(crops) if crops else pa.array([], tensors.TENSOR),
            self.boxes.removesuffix("es"): pa.array(np.array(boxes, np.float32).tolist(), pa.list_(pa.float32())),
        }
        for name, single in beside.items():
            columns[single] = pa.array(entries[name], lists[name].type.value_type)
        outcome = result.several(columns, *numbered(counts), errors)
        old_names = {self.boxes, *beside, *columns}
        outcome.order = [*(name for name in table.column_names if name not in old_names), *columns]
        return outcome


def _boxes(column: pa.ChunkedArray, name: str) -> list[Any]:
    """Return a list of boxes for each row. Raise `ContractError` if the column cannot hold boxes."""
    if column.type == tensors.TENSOR:
        return [[] if boxes is None else boxes.tolist() for boxes in tensors.to_numpy(column)]
    kind, depth = column.type, 0
    while is_list(kind):
        kind, depth = kind.value_type, depth + 1
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if not (types.is_null(kind) or (is_number and depth == 2)):
        raise ContractError(
            f"crop_boxes: expected lists of boxes in column {name!r}, each a list of left, top, right and bottom in "
            f"pixels, found {column.type}. Make such lists in derive_columns before it.",
            "preprocess",
        )
    return [boxes or [] for boxes in column.to_pylist()]


def _cut(image: np.ndarray | None, box: list[float] | None) -> np.ndarray:
    """Return the pixels of `image`, uint8 H x W x 3, that the box covers, in part too.

    Raise `RowError` for a box that holds none.
    """
    if image is None or image.ndim < 2:
        shape = "no value" if image is None else f"an array of shape {image.shape}"
        raise RowError(f"crop_boxes: expected an image, found {shape}")
    if not _is_box(box):
        raise RowError(f"crop_boxes: expected a box of four numbers, found {box}")
    height, width = image.shape[:2]
    x, y = np.floor(np.array(box[:2], float)).clip(0, (width, height)).astype(int)
    x_end, y_end = np.ceil(np.array(box[2:], float)).clip(0, (width, height)).astype(int)
    if x_end <= x or y_end <= y:
        raise RowError(f"crop_boxes: expected a box in the image of {width} x {height} pixels, found {box}")
    return np.ascontiguousarray(image[y:y_end, x:x_end])


def _is_box(box: Any) -> TypeGuard[list[float]]:
    return isinstance(box, list) and len(box) == 4 and None not in box and bool(np.isfinite(np.array(box, float)).all())


def _entries(values: list[Any] | None, count: int, name: str) -> list[Any]:
    entries = values or []
    if len(entries) != count:
        raise RowError(f"crop_boxes: expected {count} entries in {name!r}, one a box, found {len(entries)}")
    return entries
