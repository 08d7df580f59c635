"""A preview of a few rows for the Prefect UI: values as text, images as small pictures."""

import base64
import io

import numpy as np
import pyarrow as pa

from overnight.tasks.artifacts import cell
from overnight.tasks.rows import blocks, nested_rows
from overnight.tasks.rows.tensors import TENSOR, to_numpy

THUMBNAIL_PIXELS = 96
ROWS_SHOWN = 16  # of the rows that were made of the sample's rows


def shown(sample: pa.Table) -> pa.Table:
    """Return the rows of the sample, or the first rows that a step made of them."""
    return (
        blocks.live_rows(sample)[0][:ROWS_SHOWN]
        if nested_rows.COLUMN in sample.column_names
        else blocks.visible(sample)
    )


def preview(table: pa.Table) -> str:
    """Return a Markdown table with one line per row; arrays of shape H x W x 3 and type uint8 are drawn."""
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
