"""The blocks that a Ray task passes on: of bounded bytes, and in time although the rows are slow.

Ray Data passes on the output of a task when it has the bytes of a full block, or when the task ends. A task lasts
longer than planned if its rows are slower than those of the sample. Its finished rows then get padding: one empty row
with the bytes that a full block still lacks. The receiver of the block drops the padding first.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.blocks import END, settled_block, with_column
from overnight.tasks.rows.rebatch import cut, joined

LARGEST_BLOCK_BYTES = 32 * 2**20  # keeps memory small and lets the model start early; Ray Data's limit is 4 times this
PADDING_UNIT = -1  # no row of a source has this unit


@dataclass(frozen=True)
class PartSize:
    """The job's settings for staged parts: the least rows, or if None, the seconds in which the rows arrive."""

    rows: int | None
    seconds: float

    def is_due(self, rows: int, seconds: float) -> bool:
        """Return True if `rows` finished rows are enough for a part; the first has waited for `seconds`."""
        return rows >= self.rows if self.rows else seconds >= self.longest

    @property
    def longest(self) -> float:
        """Return the seconds after which a Ray task passes on its finished rows; infinite if `rows` is set.

        They wait as long again for a part, and the last third is for its writer.
        """
        return math.inf if self.rows else self.seconds / 3


def passed_on(blocks: Iterable[pa.Table], full: int, longest: float) -> Iterator[pa.Table]:
    """Yield the same rows in blocks of at most `LARGEST_BLOCK_BYTES`, with padding that makes Ray Data pass them on.

    Ray Data passes on a block of `full` bytes. Rows wait at most about `longest` seconds for that.
    """
    waiting_bytes, start = 0, time.monotonic()
    for block in blocks:
        for piece in cut(block, LARGEST_BLOCK_BYTES):
            waiting_bytes += piece.nbytes
            is_due = time.monotonic() - start > longest
            if is_due and waiting_bytes <= full:
                yield joined([piece, _padding(full + 1 - waiting_bytes)])
            else:
                yield piece
            if is_due or waiting_bytes > full:
                waiting_bytes, start = 0, time.monotonic()


def without_padding(block: pa.Table) -> pa.Table:
    """Return the block without the empty rows that `passed_on` added."""
    is_padding = pc.equal(block["__unit"], PADDING_UNIT)
    return block.filter(pc.invert(is_padding)) if pc.any(is_padding).as_py() else block


def _padding(size: int) -> pa.Table:
    """Return a block of one empty row, which has `size` bytes."""
    row = settled_block({}, PADDING_UNIT, [0], END)
    return with_column(row, "__error_message", pa.array(["\0" * size], pa.string()))
