"""Columns that are too heavy to publish by default: bytes, and arrays of two or more dimensions.

With `bytes_stay`, bytes are not heavy: the source is a table, whose bytes are data like its other columns. Columns
whose names begin with a prefix in `earlier` are not heavy, because earlier models made them.
"""

from collections.abc import Iterable

import pyarrow as pa

from overnight.tasks.rows import blocks, nested_rows, tensors

UNKNOWN_RANK = 2  # of a column of nulls, which counts as heavy


def heavy_columns(block: pa.Table, earlier: tuple[str, ...] = (), bytes_stay: bool = False) -> set[str]:
    """Return the names of the heavy columns of a block."""
    table = blocks.visible(block)
    if nested_rows.COLUMN in block.column_names:
        table, _ = blocks.live_rows(block)
    heavy = set()
    for field in table.schema:
        if earlier and field.name.startswith(earlier):
            continue
        is_bytes = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
        is_array = field.type == tensors.TENSOR and (tensors.rank(table[field.name]) or UNKNOWN_RANK) > 1
        if (is_bytes and not bytes_stay) or is_array:
            heavy.add(field.name)
    return heavy


def drop_heavy(
    block: pa.Table, keep: Iterable[str], bytes_stay: bool = False, earlier: tuple[str, ...] = ()
) -> pa.Table:
    """Return the block without its heavy columns, except those in `keep`."""
    heavy = heavy_columns(block, earlier, bytes_stay)
    return blocks.leaving_out(block, sorted(heavy - set(keep)))
