"""Run a job's steps on one image file that is not a row of a source, to make the input of its model.

`filter_rows`, `deduplicate` and `derive_columns` are left out: a query cannot be filtered, and has only the image
column.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.preprocess.images.decode import allow_pixels, decode_image
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.deduplicate import Deduplicate
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.rows import apply, blocks, tensors
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS

LEFT_OUT = (FilterRows, Deduplicate, DeriveColumns)


def query_image(name: str, content: bytes, steps: Sequence[PreprocessStep]) -> np.ndarray:
    """Run the steps on an image file, whose name is for messages, and return the image as uint8, 1 x H x W x 3.

    If no step decodes images, the file is decoded first. Raise `JobError` if a step fails on it.
    """
    steps = [step for step in steps if not isinstance(step, LEFT_OUT)]
    if not any(isinstance(step, DecodeImage | ResizeImage) for step in steps):
        steps = [DecodeImage(), *steps]
    data = pa.table({"row_id": [name], "uri": [name], "image": pa.array([content], pa.binary())})
    block = blocks.with_hidden(data, np.zeros(1, np.int64), np.zeros(1, np.int64))
    for step in steps:
        block = apply.apply(block, "preprocess", step.build())
        if block["__state"][0].as_py() != blocks.LIVE:
            raise JobError(f"image {name}: {block['__error_message'][0].as_py() or f'{step.kind} filtered it'}.")
    return tensors.to_numpy(block["image"])


def readable_image(content: bytes) -> np.ndarray | None:
    """Decode an image file for display, as uint8 H x W x 3, upright. Return None if it cannot be decoded."""
    allow_pixels(MAX_IMAGE_PIXELS)
    try:
        return decode_image(pa.py_buffer(content), MAX_IMAGE_PIXELS)
    except RowError:
        return None
