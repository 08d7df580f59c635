"""Make a row of each box of an image. Its image is the content of the box.

Columns in: `image`, uint8 H x W x 3, and `boxes`, a list of boxes for each row. A box has left, top, right and bottom
in pixels, as `object_detection` writes them. Columns out: the crop in the image's place, and the box (four float32).
The column of the box has the name of the column of boxes without its last letters "es", such as `found_box` for
`found_boxes`. The lists `found_labels` and `found_scores` become `found_label` and `found_score`. `row_id` gets the
box's number, from 0. A row without a box counts as filtered.

A box is cut at the image's edges and holds whole pixels. A pixel that it covers in part belongs to it.
"""

from typing import Annotated, Any, Literal, TypeGuard

import numpy as np
import pyarrow as pa
from pyarrow import types
from pydantic import Field, field_validator

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.columns import lists_in, require_columns
from overnight.tasks.rows import result, tensors
from overnight.tasks.rows.arrow_types import is_list
from overnight.tasks.rows.column_effect import ColumnEffect

BESIDE = {"labels": "label", "scores": "score"}  # the lists of a detection, and the names of their entries


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

    def inputs(self) -> list[str]:
        prefix = self.boxes.removesuffix("boxes")
        return [self.image, self.boxes, *(f"{prefix}{name}" for name in BESIDE)]

    def column_effect(self) -> ColumnEffect:
        prefix = self.boxes.removesuffix("boxes")
        ends = [f"{prefix}{name}" for name in ("box", *BESIDE.values())]
        lists = [self.boxes, *(f"{prefix}{name}" for name in BESIDE)]
        return ColumnEffect([self.image, self.boxes], makes=[self.image, *ends], removes=lists)

    def build(self) -> result.Work:
        prefix = self.boxes.removesuffix("boxes")

        def crop(table: pa.Table) -> result.Outcome:
            require_columns(table, [self.image, self.boxes], self.kind)
            if table[self.image].type != tensors.TENSOR:
                raise ContractError(
                    f"crop_boxes: expected decoded images in column {self.image!r}, found {table[self.image].type}. "
                    "Put decode_image before it.",
                    "preprocess",
                )
            beside = [name for name in BESIDE if f"{prefix}{name}" in table.column_names]
            columns_beside = {name: lists_in(table, f"{prefix}{name}", self.kind) for name in beside}
            lists = {name: column.to_pylist() for name, column in columns_beside.items()}
            made_of: list[int] = []
            numbers: list[int] = []
            crops: list[np.ndarray] = []
            boxes: list[Any] = []
            entries: dict[str, list[Any]] = {name: [] for name in beside}
            failed: dict[int, Exception] = {}
            images = tensors.to_numpy(table[self.image])
            for row, (image, found) in enumerate(zip(images, _boxes(table[self.boxes], self.boxes), strict=True)):
                try:
                    cut = [_cut(image, box) for box in found or ()]
                    others = {name: _beside(lists[name][row], len(cut), f"{prefix}{name}") for name in beside}
                except RowError as error:
                    failed[row] = error
                    continue
                made_of += [row] * len(cut)
                numbers += range(len(cut))
                crops += cut
                boxes += [list(map(float, box)) for box in found or ()]
                for name, values in others.items():
                    entries[name] += values
            columns = {
                self.image: tensors.to_arrow(crops) if crops else pa.array([], tensors.TENSOR),
                f"{prefix}box": pa.array(boxes, pa.list_(pa.float32())),
                **{
                    f"{prefix}{BESIDE[name]}": pa.array(values, columns_beside[name].type.value_type)
                    for name, values in entries.items()
                },
            }
            left = [name for name in table.column_names if name not in {self.boxes, *(f"{prefix}{n}" for n in beside)}]
            made = result.several(columns, made_of, numbers, failed)
            made.order = [*(name for name in left if name not in columns), *columns]
            return made

        return crop


def _boxes(column: pa.ChunkedArray, name: str) -> list[Any]:
    """Return a list of boxes, or None, for each row. Raise `ContractError` if the column cannot hold boxes."""
    if column.type == tensors.TENSOR:
        return [None if boxes is None else boxes.tolist() for boxes in tensors.to_numpy(column)]
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
    return column.to_pylist()


def _cut(image: np.ndarray | None, box: list[float] | None) -> np.ndarray:
    """Return the pixels of `image`, uint8 H x W x 3, in `box`. Raise `RowError` for a box that holds none."""
    if image is None or image.ndim < 2:
        found = "no value" if image is None else f"an array of shape {image.shape}"
        raise RowError(f"crop_boxes: expected an image, found {found}")
    if not _is_box(box):
        raise RowError(f"crop_boxes: expected a box of four numbers, found {box}")
    height, width = image.shape[:2]
    left, top = int(np.clip(np.floor(box[0]), 0, width)), int(np.clip(np.floor(box[1]), 0, height))
    right, bottom = int(np.clip(np.ceil(box[2]), 0, width)), int(np.clip(np.ceil(box[3]), 0, height))
    if right <= left or bottom <= top:
        raise RowError(f"crop_boxes: expected a box in the image of {width} x {height} pixels, found {box}")
    return np.ascontiguousarray(image[top:bottom, left:right])


def _is_box(box: Any) -> TypeGuard[list[float]]:
    return isinstance(box, list) and len(box) == 4 and None not in box and bool(np.isfinite(np.array(box, float)).all())


def _beside(values: list[Any] | None, count: int, name: str) -> list[Any]:
    found = values or []
    if len(found) != count:
        raise RowError(f"crop_boxes: expected {count} entries in {name!r}, one a box, found {len(found)}")
    return found
