"""Blocks for tests."""

from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.rows.blocks import with_hidden


def source_block(unit: int, first_row: int, data: pa.Table) -> pa.Table:
    """A block of live rows `first_row`, `first_row + 1`, ... of one unit."""
    return with_hidden(data, np.full(len(data), unit), first_row + np.arange(len(data)))


def numbered_block(count: int, **columns: Any) -> pa.Table:
    """Rows 10, 11, ... of unit 4, called `r0`, `r1`, ..., with their places in `x`."""
    names = pa.array([f"r{i}" for i in range(count)], pa.string())
    return source_block(4, 10, pa.table({"row_id": names, "x": pa.array(range(count), pa.int64()), **columns}))
