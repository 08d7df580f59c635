"""Join and cut blocks, to get blocks of a given number of rows or bytes, or only the first rows of a block."""

import math
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from overnight.tasks.rows import nested_rows
from overnight.tasks.rows.blocks import HIDDEN, counts, live_rows, with_outputs

SECONDS_AT_ONCE = 5.0  # the longest time for which small blocks are collected


def joined(blocks: Iterable[pa.Table]) -> pa.Table:
    """Return all blocks as one, although their columns may differ; an empty block if there are none."""
    blocks = list(blocks)
    return pa.concat_tables(blocks, promote_options="permissive") if blocks else HIDDEN.empty_table()


def rebatch_rows(
    blocks: Iterable[pa.Table], length: Callable[[], int], seconds: float = math.inf
) -> Iterator[pa.Table]:
    """Yield the same rows in blocks of `length()` rows. Memory holds little more than one block.

    The last block may be shorter, and so may a block that took `seconds` to collect. If the blocks have output rows,
    `length` counts those. A block may then be longer, because the output rows of a source row stay together.
    """
    held: list[tuple[pa.Table, np.ndarray]] = []
    began = time.monotonic()
    for block in blocks:
        held.append((block, counts(block)))
        while sum(int(each.sum()) for _, each in held) >= length():
            whole, each = joined(table for table, _ in held), np.concatenate([each for _, each in held])
            stop = int(np.searchsorted(np.cumsum(each), length())) + 1
            yield whole[:stop]
            held = [(whole[stop:], each[stop:])] if len(whole) > stop else []
            began = time.monotonic()
        if held and time.monotonic() - began >= seconds:
            yield joined(table for table, _ in held)
            held, began = [], time.monotonic()
    if held:
        yield joined(table for table, _ in held)


def rebatch_bytes(blocks: Iterable[pa.Table], least: int) -> Iterator[pa.Table]:
    """Yield the same rows in blocks of at least `least` bytes, each column in one chunk.

    The last block may be smaller, and so may a block that took `SECONDS_AT_ONCE` to collect.
    """
    held: list[pa.Table] = []
    size, began = 0, time.monotonic()
    for block in blocks:
        held.append(block)
        size += block.nbytes
        if size >= least or time.monotonic() - began >= SECONDS_AT_ONCE:
            yield joined(held).combine_chunks()
            held, size, began = [], 0, time.monotonic()
    if held:
        yield joined(held).combine_chunks()


def cut(block: pa.Table, most: int) -> Iterator[pa.Table]:
    """Yield the block in pieces of at most `most` bytes, or of one row if that is larger."""
    if block.nbytes <= most or len(block) < 2:
        yield block
        return
    half = len(block) // 2
    yield from cut(block[:half], most)
    yield from cut(block[half:], most)


def first_rows(block: pa.Table, most: int) -> pa.Table:
    """Return a block of the first `most` rows; if the block has output rows, `most` counts these."""
    if nested_rows.COLUMN not in block.column_names:
        return block[:most]
    table, places = live_rows(block)
    cut = with_outputs(block, table[:most], places[:most])
    return cut.filter(cut[nested_rows.COLUMN].is_valid())
