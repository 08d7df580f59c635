"""Rows that represent bytes and time: Ray Data counts rows to decide what it passes on, whatever their size.

A writer that waits for many rows would wait forever if Ray Data's memory holds fewer of them. A block whose rows
are larger or slower than those of the sample therefore gets empty rows of state `PADDING`. It then counts as many rows
as its bytes, or the model's seconds, are worth. The worker or the writer that takes the block drops them first.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.blocks import PADDING, settled_block
from overnight.tasks.rows.rebatch import cut, joined

LARGEST_BLOCK_BYTES = 32 * 2**20  # keeps memory small and lets the model start early; Ray Data's is four times as much


@dataclass(frozen=True)
class Share:
    """What Ray Data passes on together: `rows`, or fewer that have `size` bytes or took models `seconds`."""

    rows: int
    size: int
    seconds: float = math.inf

    def padded(self, blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the same rows in blocks of bounded bytes, each with padding if its bytes are worth more rows."""
        for block in blocks:
            for piece in cut(block, LARGEST_BLOCK_BYTES):
                missing = int(self.rows * min(self._part(piece), 1)) - len(piece)
                yield joined([piece, _padding(missing)]) if missing > 0 else piece

    def _part(self, block: pa.Table) -> float:
        """Return the block's share of what Ray Data passes on together, by its bytes and its time."""
        return max(block.nbytes / self.size, (pc.sum(block["__infer_seconds"]).as_py() or 0.0) / self.seconds)


def padding_of(block: pa.Table) -> int:
    """Return how many rows of the block are padding."""
    return int(pc.sum(pc.equal(block["__state"], PADDING)).as_py() or 0)


def without_padding(block: pa.Table) -> pa.Table:
    """Return the block without its padding."""
    return block.filter(pc.not_equal(block["__state"], PADDING)) if padding_of(block) else block


def _padding(count: int) -> pa.Table:
    return settled_block({}, -1, [-1] * count, PADDING)
