"""The order in which an attempt reads: the pending units, packed into blocks of even bytes.

A block is a row group of the order file and becomes one read task, which carries no more than the file's place and its
row group's number: a plan of ten million units stays small. Columns are the manifest's and `settled`, the row ranges
`[start, stop, start, stop, ...]` of the unit that earlier attempts staged and this one skips.
"""

import io
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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


def write_order(location: Location, pending: pa.Table, blocks: np.ndarray) -> None:
    """Writes `pending` (schema `PENDING`, in reading order) with the block of each unit, ascending."""
    bounds = np.flatnonzero(np.diff(blocks, prepend=-1)).tolist()
    bounds.append(len(blocks))
    summaries, buffer = [], io.BytesIO()
    for start, stop in pairwise(bounds):
        part = pending.slice(start, stop - start)
        known = part["rows"].null_count == 0
        settled = sum(sum(ranges[1::2]) - sum(ranges[::2]) for ranges in part["settled"].to_pylist() if ranges)
        rows = int(np.sum(part["rows"].to_numpy())) - settled if known else None
        summaries.append([rows, int(np.sum(part["size"].to_numpy()))])
    schema = PENDING.with_metadata({"blocks": json.dumps(summaries)})
    with pq.ParquetWriter(buffer, schema) as writer:
        for start, stop in pairwise(bounds):
            writer.write_table(pending.slice(start, stop - start).cast(schema), row_group_size=max(stop - start, 1))
    location.write_bytes(buffer.getvalue())


def read_summaries(location: Location) -> list[tuple[int | None, int]]:
    """(rows or None, bytes) of each block."""
    with location.open() as file:
        metadata = pq.ParquetFile(file).schema_arrow.metadata
    return [(rows, size) for rows, size in json.loads(metadata[b"blocks"])]


def read_block(location: Location, block: int) -> pa.Table:
    """The units of one block, schema `PENDING`."""
    with location.open() as file:
        return pq.ParquetFile(file).read_row_group(block)


def read_order(location: Location) -> pa.Table:
    """All pending units, in reading order."""
    with location.open() as file:
        return pq.ParquetFile(file).read()
