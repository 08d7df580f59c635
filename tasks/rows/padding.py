"""Rows that represent bytes and time: Ray Data counts rows to decide what it passes on, whatever their size.

A writer that waits for many rows would wait forever if Ray Data's memory holds fewer of them. A block whose rows
are larger or slower than those of the sample therefore gets empty rows of state `PADDING`. It then counts as many rows
as its bytes, or its seconds of work, are worth. The worker or the writer that takes the block drops them first.

Ray Data passes on what a Ray task made when it has the bytes of a full block, or when the task ends. A task lasts
longer than planned if its rows are slower than those of the sample. From time to time it then adds padding that has the
missing bytes, so that Ray Data passes on the finished rows.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.blocks import PADDING, settled_block
from overnight.tasks.rows.rebatch import cut, joined

LARGEST_BLOCK_BYTES = 32 * 2**20  # keeps memory small and lets the model start early; Ray Data's is four times as much


@dataclass(frozen=True)
class Share:
    """What Ray Data passes on together: `rows`, or fewer that have `size` bytes or took as long as `seconds`.

    Args:
        seconds: Stage -> the work of all its workers on what is passed on together, in seconds; empty: no limit.
        longest: A Ray task passes on its finished rows after this time, in seconds.
        full: The bytes of a block that Ray Data passes on immediately.
    """

    rows: int
    size: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    longest: float = math.inf
    full: int = LARGEST_BLOCK_BYTES

    def padded(self, blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the same rows in blocks of bounded bytes, each with padding if its bytes are worth more rows."""
        held, began = 0, time.monotonic()  # bytes that Ray Data holds back, and since when
        for piece in (piece for block in blocks for piece in cut(block, LARGEST_BLOCK_BYTES)):
            held += piece.nbytes
            is_due = time.monotonic() - began > self.longest
            rows = self.rows if is_due else int(self.rows * min(self._part(piece), 1))
            yield _padded(piece, rows - len(piece), max(self.full + 1 - held, 0) if is_due else 0)
            if is_due or held > self.full:
                held, began = 0, time.monotonic()

    def _part(self, block: pa.Table) -> float:
        """Return the block's share of what Ray Data passes on together, by its bytes and its time."""
        times = ((pc.sum(block[f"__{stage}_seconds"]).as_py() or 0.0) / limit for stage, limit in self.seconds.items())
        return max(block.nbytes / self.size, sum(times))


def padding_of(block: pa.Table) -> int:
    """Return how many rows of the block are padding."""
    return int(pc.sum(pc.equal(block["__state"], PADDING)).as_py() or 0)


def without_padding(block: pa.Table) -> pa.Table:
    """Return the block without its padding."""
    return block.filter(pc.not_equal(block["__state"], PADDING)) if padding_of(block) else block


def _padded(block: pa.Table, rows: int, weight: int) -> pa.Table:
    """Return the block with rows of padding, which have `weight` bytes; with one row if it has a weight."""
    rows = max(rows, 1 if weight else 0)
    if not rows:
        return block
    padding = settled_block({}, -1, [-1] * rows, PADDING)
    if weight:
        texts = pa.array(["\0" * weight, *[None] * (rows - 1)], pa.string())
        padding = padding.set_column(padding.column_names.index("__error_message"), "__error_message", texts)
    return joined([block, padding])
