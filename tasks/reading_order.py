"""The order in which an attempt reads: the pending units, packed into blocks of even bytes.

A block is a record batch of the order file (Arrow IPC, whose footer is some bytes a batch: each read task reads it) and
becomes one read task, which carries no more than the file's place and its number: a plan of ten million units stays
small. Columns are the manifest's and `settled`, the row ranges
`[start, stop, start, stop, ...]` of the unit that earlier attempts staged and this one skips.
"""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.manifest import UNITS
from tasks.storage import Location

TARGET_BLOCK_BYTES = 8 * 2**20
MINIMUM_BLOCKS = 16
MAXIMUM_BLOCKS = 4096

PENDING = UNITS.append(pa.field("settled", pa.list_(pa.int64())))


def pack(sizes: np.ndarray) -> np.ndarray:
    """The block (int64, from 0, ascending) of each unit, given sizes in bytes in reading order.

    Blocks are runs of consecutive units with about the same number of bytes, so that none is a straggler.
    """
    if not len(sizes):
        return np.empty(0, np.int64)
    weights = np.maximum(np.asarray(sizes, np.float64), 1)
    total = weights.sum()
    count = int(np.clip(total / TARGET_BLOCK_BYTES, min(MINIMUM_BLOCKS, len(sizes)), MAXIMUM_BLOCKS))
    middles = np.cumsum(weights) - weights / 2
    blocks = np.minimum((middles / total * count).astype(np.int64), count - 1)
    return np.unique(blocks, return_inverse=True)[1].astype(np.int64)


def write_order(location: Location, pending: pa.Table, blocks: np.ndarray, quarantined: int = 0) -> None:
    """Writes `pending` (schema `PENDING`, in reading order) with the block of each unit, ascending.

    `quarantined`: how many rows of the partition earlier attempts quarantined.
    """
    bounds = np.flatnonzero(np.diff(blocks, prepend=-1))
    left = pc.subtract(pending["rows"], _settled_rows(pending["settled"])).to_numpy()
    rows = [None] * len(bounds) if pending["rows"].null_count else np.add.reduceat(left, bounds, dtype=int).tolist()
    sizes = np.add.reduceat(pending["size"].to_numpy(), bounds).tolist() if len(bounds) else []
    about = {"blocks": json.dumps(list(zip(rows, sizes, strict=True))), "quarantined": str(quarantined)}
    schema, sink = PENDING.with_metadata(about), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for start, stop in pairwise([*bounds.tolist(), len(pending)]):
            writer.write_table(pending.slice(start, stop - start).combine_chunks().cast(schema))
    location.write_bytes(sink.getvalue().to_pybytes())


def _settled_rows(ranges: pa.ChunkedArray) -> pa.Array:
    """The number of rows in each unit's ranges `[start, stop, start, stop, ...]` (int64)."""
    ranges = ranges.combine_chunks()
    bounds, units = pc.list_flatten(ranges).to_numpy(), pc.list_parent_indices(ranges).to_numpy()
    lengths = bounds[1::2] - bounds[::2]
    return pa.array(np.bincount(units[::2], weights=lengths, minlength=len(ranges)).astype(np.int64))


def read_summaries(location: Location) -> list[tuple[int | None, int]]:
    """(rows or None, bytes) of each block."""
    return [(rows, size) for rows, size in json.loads(_about(location)[b"blocks"])]


def read_quarantined(location: Location) -> int:
    """How many rows of the partition were quarantined before."""
    return int(_about(location)[b"quarantined"])


def read_block(location: Location, block: int) -> pa.Table:
    """The units of one block, schema `PENDING`."""
    with location.open() as file:
        return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(block)])


def read_order(location: Location) -> pa.Table:
    """All pending units, in reading order."""
    with location.open() as file:
        return pa.ipc.open_file(file).read_all()


def _about(location: Location) -> dict[bytes, bytes]:
    with location.open() as file:
        return dict(pa.ipc.open_file(file).schema.metadata)
