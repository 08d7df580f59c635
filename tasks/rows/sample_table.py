"""A table of a few rows for the Prefect UI: values as text, images as small pictures."""

import base64
import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.artifacts import cell
from overnight.tasks.rows.blocks import existing, live_rows
from overnight.tasks.rows.tensors import TENSOR, to_numpy

PICTURE_PIXELS = 192  # in a table of eight rows, a viewer sees what a picture shows
ROWS_SHOWN = 16  # at most, because a step may make many rows of one
LONGEST_TEXT = 120


def predictions_beside_inputs(sample: pa.Table, behind: pa.Table | None) -> pa.Table:
    """Return a table of a few rows: `row_id`, the columns that the models made, the models' inputs, and `uri`.

    `sample` is a block before the models, `behind` the same after them and their steps; None if no row passed.
    """
    inputs, _ = live_rows(sample)
    outputs = inputs if behind is None else live_rows(behind)[0]
    input_names = [name for name in inputs.column_names if name not in ("row_id", "uri")]
    new_names = [name for name in outputs.column_names if name not in inputs.column_names]
    rows = pc.index_in(outputs["row_id"], inputs["row_id"])
    if not rows.null_count:
        table = inputs.take(rows)
        for name in new_names:
            table = table.append_column(name, outputs[name])
    else:
        table = outputs
    order = ["row_id", *new_names, *input_names, "uri"]
    return table.select(existing(table, order))[:ROWS_SHOWN]


def markdown(table: pa.Table) -> str:
    """Return a Markdown table with one line per row; arrays of uint8 with shape H x W x 3 are shown as pictures."""
    lines = [list(map(cell, table.column_names)), ["---"] * table.num_columns]
    lines += map(list, zip(*map(_cells, table.columns), strict=True))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(column: pa.ChunkedArray) -> list[str]:
    if column.type == TENSOR:
        return list(map(_array, to_numpy(column)))
    return list(map(cell, map(_short, column.to_pylist())))


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = str(value)
    if len(text) > LONGEST_TEXT:
        return f"{text[: LONGEST_TEXT - 3]}..."
    return text


def _array(value: np.ndarray | None) -> str:
    if value is None:
        return ""
    if value.ndim != 3 or value.shape[2] != 3 or value.dtype != np.uint8 or not value.size:
        return f"{value.dtype} {' x '.join(map(str, value.shape))}"
    return f"![](data:image/png;base64,{picture(value, PICTURE_PIXELS)})"


def picture(image: np.ndarray, edge: int) -> str:
    """Return an image, uint8 H x W x 3, as a PNG in Base64. Its longer side has `edge` pixels."""
    from PIL import Image

    height, width, _ = image.shape
    factor = edge / max(height, width)
    size = (max(round(width * factor), 1), max(round(height * factor), 1))
    buffer = io.BytesIO()
    Image.fromarray(image).resize(size, Image.Resampling.LANCZOS).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
