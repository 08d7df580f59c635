"""The output rows of source rows, in a block that has one row per source row.

Each value of the column `COLUMN` is the table of one source row's output rows, as an Arrow IPC stream (large_binary;
null without output rows). So all code that cuts and joins blocks, Ray Data too, keeps these rows together. A source row
is processed, staged and settled with all of its output rows or not at all. This file does not use row states.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

COLUMN = "__outputs"


def packed(table: pa.Table, counts: np.ndarray) -> pa.Array:
    """Return a value of the column `COLUMN` for each source row: its output rows as bytes, null if it has none.

    `table` has all output rows, in the order of their source rows. `counts` (int64) has their number per source row.
    """
    sink = pa.BufferOutputStream()
    ends = np.zeros(len(counts) + 1, np.int64)
    stops = np.cumsum(counts)
    for place, (count, stop) in enumerate(zip(counts.tolist(), stops.tolist(), strict=True)):
        if count:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table[stop - count : stop])
        ends[place + 1] = sink.tell()
    valid = pa.array(counts > 0).buffers()[1]
    buffers = [valid, pa.py_buffer(ends), sink.getvalue()]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(counts), buffers)


def unpacked(column: pa.ChunkedArray) -> tuple[pa.Table, np.ndarray]:
    """Return all output rows in a column from `packed` without nulls, and their number per source row (int64)."""
    tables = _tables(column)
    joined = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    return joined, np.array([len(table) for table in tables], np.int64)


def counts(column: pa.ChunkedArray) -> np.ndarray:
    """Return the number of output rows in each value of a column from `packed` (int64); 0 where it is null."""
    found = np.zeros(len(column), np.int64)
    there = column.is_valid().to_numpy()
    found[there] = [len(table) for table in _tables(column.drop_null())]
    return found


def _tables(column: pa.ChunkedArray) -> Sequence[pa.Table]:
    return [pa.ipc.open_stream(value.as_buffer()).read_all() for value in column]
