"""The output rows of source rows, in a block that has one row per source row.

Each value of the column `COLUMN` is the table of one source row's output rows, as an Arrow IPC stream (large_binary;
null without output rows). So all code that cuts and joins blocks, Ray Data too, keeps these rows together. A source row
is processed, staged and settled with all of its output rows or not at all.
"""

import numpy as np
import pyarrow as pa

COLUMN = "__outputs"


def packed(table: pa.Table, counts: np.ndarray) -> pa.Array:
    """Return a value of `COLUMN` for each source row.

    `table` has all output rows, in the order of their source rows. `counts` (int64) has their number per source row.
    """
    sink = pa.BufferOutputStream()
    offsets = np.zeros(len(counts) + 1, np.int64)
    start = 0
    for row, count in enumerate(counts.tolist()):
        if count:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table[start : start + count])
        start += count
        offsets[row + 1] = sink.tell()
    valid = pa.array(counts > 0).buffers()[1]
    buffers = [valid, pa.py_buffer(offsets), sink.getvalue()]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(counts), buffers)


def unpacked(column: pa.ChunkedArray) -> tuple[pa.Table, np.ndarray]:
    """Return all output rows in a column from `packed` without nulls, and their number per source row (int64)."""
    pieces = tables(column)
    rows = pa.concat_tables([pa.table({}), *pieces], promote_options="permissive")
    return rows, np.array(list(map(len, pieces)), np.int64)


def tables(column: pa.ChunkedArray) -> list[pa.Table]:
    """Return the output rows of each value in a column from `packed` without nulls."""
    return list(map(_table, column))


def counts(column: pa.ChunkedArray) -> np.ndarray:
    """Return the number of output rows in each value of a column from `packed` (int64); 0 if it is null."""
    numbers = np.zeros(len(column), np.int64)
    for row, value in enumerate(column):
        if value.is_valid:
            numbers[row] = len(_table(value))
    return numbers


def _table(value: pa.LargeBinaryScalar) -> pa.Table:
    return pa.ipc.open_stream(value.as_buffer()).read_all()
