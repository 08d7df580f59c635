"""Join and cut blocks, to get blocks of a given number of rows or bytes, or only the first rows of a block."""

import math
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from overnight.tasks.rows import nested_rows
from overnight.tasks.rows.blocks import HIDDEN, counts, has_outputs, live_rows, with_outputs

SECONDS_AT_ONCE = 5.0  # the longest time for which small blocks are collected


def joined(blocks: Iterable[pa.Table]) -> pa.Table:
    """Return all blocks as one, although their columns may differ; an empty block if there are none."""
    blocks = list(blocks)
    if not blocks:
        return HIDDEN.empty_table()
    return pa.concat_tables(blocks, promote_options="permissive")


def rebatch_rows(
    blocks: Iterable[pa.Table], length: Callable[[], int], seconds: float = math.inf
) -> Iterator[pa.Table]:
    """Yield the same rows in blocks of `length()` rows, or output rows. Memory holds little more than one block.

    The last block may be shorter, and so may one that took `seconds`. The output rows of a source row stay together.
    """
    waiting: list[pa.Table] = []
    numbers = np.empty(0, np.int64)  # of the rows that each row counts as
    start = time.monotonic()
    for block in blocks:
        waiting.append(block)
        numbers = np.concatenate([numbers, counts(block)])
        while numbers.sum() >= length():
            whole = joined(waiting)
            stop = int(np.searchsorted(np.cumsum(numbers), length())) + 1
            yield whole[:stop]
            numbers = numbers[stop:]
            # no rows would still give the next block their columns
            waiting = [whole[stop:]] if len(numbers) else []
            start = time.monotonic()
        if len(numbers) and time.monotonic() - start >= seconds:
            yield joined(waiting)
            waiting, numbers, start = [], numbers[:0], time.monotonic()
    if len(numbers):
        yield joined(waiting)


def rebatch_bytes(blocks: Iterable[pa.Table], least: int) -> Iterator[pa.Table]:
    """Yield the same rows in blocks of at least `least` bytes, each column in one chunk.

    The last block may be smaller, and so may a block that took `SECONDS_AT_ONCE` to collect.
    """
    waiting: list[pa.Table] = []
    size, start = 0, time.monotonic()
    for block in blocks:
        waiting.append(block)
        size += block.nbytes
        if size >= least or time.monotonic() - start >= SECONDS_AT_ONCE:
            yield joined(waiting).combine_chunks()
            waiting, size, start = [], 0, time.monotonic()
    if waiting:
        yield joined(waiting).combine_chunks()


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
    if not has_outputs(block):
        return block[:most]
    rows, sources = live_rows(block)
    block = with_outputs(block, rows[:most], sources[:most])
    return block.filter(block[nested_rows.COLUMN].is_valid())
