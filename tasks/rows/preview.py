"""A preview of a few rows for the Prefect UI: values as text, images as small pictures."""

import base64
import io

import numpy as np
import pyarrow as pa

from overnight.tasks.artifacts import cell
from overnight.tasks.rows import blocks
from overnight.tasks.rows.tensors import TENSOR, to_numpy

THUMBNAIL_PIXELS = 96
ROWS_SHOWN = 16  # at most, because a step may make many rows of one


def predictions_beside_inputs(sample: pa.Table, behind: pa.Table | None) -> pa.Table:
    """Return a table of a few rows: `row_id`, the columns that the models made, the models' inputs, and `uri`.

    `sample` is a block before the models. `behind` is the same block after the models and the steps that follow them;
    None if no row passed. If these made other rows, the table has the rows that they made.
    """
    inputs, _ = blocks.live_rows(sample)
    found = inputs if behind is None else blocks.live_rows(behind)[0]
    new = [name for name in found.column_names if name not in inputs.column_names]
    rest = [name for name in inputs.column_names if name not in ("row_id", "uri")]
    if found["row_id"].equals(inputs["row_id"]):
        for name in new:
            inputs = inputs.append_column(name, found[name])
    else:
        inputs = _of_these_rows(inputs, found, [*rest, "uri"])
    order = ["row_id", *new, *rest, "uri"]
    return inputs.select([name for name in order if name in inputs.column_names])[:ROWS_SHOWN]


def _of_these_rows(inputs: pa.Table, found: pa.Table, names: list[str]) -> pa.Table:
    """Return `found` with the inputs of its rows, if each of them is an input row."""
    place = {row_id: number for number, row_id in enumerate(inputs["row_id"].to_pylist())}
    places = [place.get(row_id) for row_id in found["row_id"].to_pylist()]
    if None in places:
        return found
    for name in names:
        if name not in found.column_names and name in inputs.column_names:
            found = found.append_column(name, inputs[name].take(pa.array(places, pa.int64())))
    return found


def preview(table: pa.Table) -> str:
    """Return a Markdown table with one line per row; arrays of uint8 with shape H x W x 3 are shown as pictures."""
    lines = [
        "| " + " | ".join(cell(name) for name in table.column_names) + " |",
        "| " + " | ".join("---" for _ in table.column_names) + " |",
    ]
    columns = [_cells(column) for column in table.columns]
    lines += ["| " + " | ".join(row) + " |" for row in zip(*columns, strict=True)]
    return "\n".join(lines)


def _cells(column: pa.ChunkedArray) -> list[str]:
    if column.type == TENSOR:
        return [_array(value) for value in to_numpy(column)]
    return [cell(_short(value)) for value in column.to_pylist()]


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _array(value: np.ndarray | None) -> str:
    if value is None:
        return ""
    if value.ndim != 3 or value.shape[2] != 3 or value.dtype != np.uint8:
        return f"{value.dtype} {' x '.join(map(str, value.shape))}"
    from PIL import Image

    picture = Image.fromarray(value)
    picture.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return f"![](data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()})"
