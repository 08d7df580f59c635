"""The order in which an attempt reads: the pending units, packed into blocks of about the same number of bytes.

A block is here a group of consecutive units: one record batch of the order file (Arrow IPC). Each block becomes one
read task, which contains only the file's path and the block's number. The file has the columns of the manifest, and
`settled`: the ranges `[start, stop, start, stop, ...]` of the unit's rows that earlier attempts staged.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.state.manifest import UNITS
from overnight.tasks.storage.location import Location

TARGET_BLOCK_BYTES = 8 * 2**20
MINIMUM_BLOCKS = 16
MAXIMUM_BLOCKS = 4096
UNITS_AT_ONCE = 2**20

PENDING = UNITS.append(pa.field("settled", pa.list_(pa.int64())))


class EarlierRows(NamedTuple):
    """The rows of the partition that earlier attempts settled, and how many of them they quarantined."""

    settled: int
    quarantined: int


class Order(Protocol):
    """An order of units."""

    def order(self, pending: pa.Table) -> np.ndarray:
        """Return the position in `pending` (columns `path` and `size`) of each unit, in the order of reading."""


def pack(sizes: np.ndarray) -> np.ndarray:
    """Return the number of each unit's block (int64, ascending from 0) for the units' bytes, in reading order."""
    if not len(sizes):
        return np.empty(0, np.int64)
    weights = np.maximum(np.asarray(sizes, np.float64), 1)
    total = weights.sum()
    count = int(np.clip(total / TARGET_BLOCK_BYTES, min(MINIMUM_BLOCKS, len(sizes)), MAXIMUM_BLOCKS))
    blocks, bytes_before = np.empty(len(weights), np.int64), 0.0
    for start in range(0, len(weights), UNITS_AT_ONCE):  # for ten million units each further array takes 80 MB
        chunk = weights[start : start + UNITS_AT_ONCE]
        ends = np.cumsum(np.append(bytes_before, chunk))[1:]
        blocks[start : start + len(chunk)] = (ends - chunk / 2) / total * count
        bytes_before = ends[-1]
    np.minimum(blocks, count - 1, out=blocks)
    np.cumsum(blocks[1:] != blocks[:-1], out=blocks[1:])
    blocks[0] = 0
    return blocks


def stream_order(
    location: Location,
    pending: Iterable[pa.Table],
    blocks: np.ndarray,
    sizes: np.ndarray,
    rows_left: np.ndarray | None,
    earlier: EarlierRows,
) -> None:
    """Write the order file `location`, one record batch per block. Memory holds one block.

    `blocks`, `sizes` (bytes) and `rows_left` (None: unknown) have a number per unit of `pending`, in reading order.
    """
    first = np.zeros(min(len(blocks), 1), np.int64)
    bounds = np.append(first, np.flatnonzero(blocks[1:] != blocks[:-1]) + 1)
    rows: list[int | None] = [None] * len(bounds)
    if rows_left is not None:
        rows = np.add.reduceat(rows_left, bounds, dtype=int).tolist()
    block_bytes = np.add.reduceat(sizes, bounds).tolist() if len(bounds) else []
    summaries = json.dumps(list(zip(rows, block_bytes, strict=True)))
    schema = PENDING.with_metadata({"blocks": summaries, "earlier": json.dumps(earlier)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with location.writing() as file, pa.ipc.new_file(file, schema, options=options) as writer:
        for block in _cut(iter(pending), np.diff([*bounds, len(blocks)]).tolist()):
            writer.write_table(block.combine_chunks().cast(schema))


def _cut(tables: Iterator[pa.Table], lengths: Iterable[int]) -> Iterator[pa.Table]:
    """Yield tables of these lengths from tables of any length."""
    buffer = PENDING.empty_table()
    for length in lengths:
        while len(buffer) < length:
            buffer = pa.concat_tables([buffer, next(tables)])
        yield buffer[:length]
        buffer = buffer[length:]


def rows_in(ranges: pa.Array) -> np.ndarray:
    """Return the number of rows (int64) in the ranges of each unit, `[start, stop, start, stop, ...]`."""
    bounds, units = pc.list_flatten(ranges).to_numpy(), pc.list_parent_indices(ranges).to_numpy()
    rows = np.zeros(len(ranges), np.int64)
    np.add.at(rows, units[::2], bounds[1::2] - bounds[::2])
    return rows


def read_summaries(location: Location) -> list[tuple[int | None, int]]:
    """Return the number of rows and the bytes of each block of the order file; None for an unknown number of rows."""
    return [(rows, size) for rows, size in json.loads(_metadata(location)[b"blocks"])]


def read_earlier(location: Location) -> EarlierRows:
    """Return the rows of earlier attempts, from the order file `location`."""
    return EarlierRows(*json.loads(_metadata(location)[b"earlier"]))


def _metadata(location: Location) -> dict[bytes, bytes]:
    with location.open() as file:
        return dict(pa.ipc.open_file(file).schema.metadata)


def read_block(location: Location, block: int) -> pa.Table:
    """Return the units of the block number `block` of the order file, as a table with schema `PENDING`."""
    with location.open() as file:
        return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(block)])


def read_order(location: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all units of the order file in reading order, with all `columns` or only the named ones."""
    fields = list(map(PENDING.get_field_index, columns)) if columns else None
    with location.open() as file:
        return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields)).read_all()


def reorder(location: Location, order: Order) -> bool:
    """Rewrite an order file in another order. Return True if each unit has one row, so that the rows are in this order.

    Memory holds about a million units at a time, which are scattered over the file: ten million take ten passes.
    """
    positions = order.order(read_order(location, ["path", "size"]))
    pending = read_order(location, ["rows", "settled"])
    remaining, has_one_row_each = None, False
    if not pending["rows"].null_count:
        rows = pending["rows"].to_numpy()
        has_one_row_each = bool((rows == 1).all())
        remaining = (rows - rows_in(pending["settled"].combine_chunks()))[positions]
    del pending
    sizes = read_order(location, ["size"])["size"].to_numpy()[positions]
    tables, earlier = _in_order(location, positions), read_earlier(location)
    stream_order(location, tables, pack(sizes), sizes, remaining, earlier)
    # Otherwise the worker keeps the memory for its next task.
    pa.default_memory_pool().release_unused()
    return has_one_row_each


def _in_order(location: Location, positions: np.ndarray) -> Iterator[pa.Table]:
    for start in range(0, len(positions), UNITS_AT_ONCE):
        chunk = positions[start : start + UNITS_AT_ONCE]
        ascending = np.argsort(chunk)
        inverse = np.empty_like(ascending)
        inverse[ascending] = np.arange(len(ascending))
        yield read_positions(location, chunk[ascending]).take(inverse)


def read_positions(location: Location, positions: np.ndarray) -> pa.Table:
    """Return the units at these ascending positions (from 0) of the reading order. Memory holds one further block."""
    tables, first = [PENDING.empty_table()], 0
    with location.open() as file:
        order = pa.ipc.open_file(file)
        for number in range(order.num_record_batches):
            batch = order.get_batch(number)
            low, high = np.searchsorted(positions, [first, first + len(batch)])
            if low < high:
                units = batch.take(pa.array(positions[low:high] - first))
                tables.append(pa.Table.from_batches([units]).cast(PENDING))
            first += len(batch)
    return pa.concat_tables(tables)
