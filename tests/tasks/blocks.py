"""Blocks for tests."""

import numpy as np
import pyarrow as pa

from overnight.tasks.rows.blocks import with_hidden


def source_block(unit: int, first_row: int, data: pa.Table) -> pa.Table:
    """A block of live rows `first_row`, `first_row + 1`, ... of one unit."""
    return with_hidden(data, np.full(len(data), unit), first_row + np.arange(len(data)))
