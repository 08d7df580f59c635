"""Padding: empty rows that represent the bytes and the time of large or slow rows.

Ray Data counts rows, whatever their size, before it passes blocks on. A writer that waits for many rows would wait
forever if Ray Data's memory holds fewer of them. A block whose rows are larger or slower than those of the sample
therefore gets empty rows of state `PADDING`. It then counts as many rows as its bytes, or its seconds of work, are
worth. The worker or the writer that takes the block drops the padding first.

Ray Data passes on the output of a Ray task when it has the bytes of a full block, or when the task ends. A task lasts
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

LARGEST_BLOCK_BYTES = 32 * 2**20  # keeps memory small and lets the model start early; Ray Data's limit is 4 times this


@dataclass(frozen=True)
class Share:
    """The amount that Ray Data passes on together: `rows` rows, or fewer that have `size` bytes or took `seconds`.

    Args:
        size: The bytes of these rows in memory.
        seconds: Stage -> the most seconds of work of all its workers on these rows. The stages' fractions of their
            limits are added. If it is empty, there is no limit.
        longest: The seconds after which a Ray task passes on its finished rows.
        full: The bytes of a block that Ray Data passes on immediately.
    """

    rows: int
    size: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    longest: float = math.inf
    full: int = LARGEST_BLOCK_BYTES

    def padded(self, blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the same rows in blocks of at most `LARGEST_BLOCK_BYTES`, with padding after large or slow rows.

        The padding makes Ray Data, which counts rows and bytes, pass on fewer of these rows together.
        """
        held, began = 0, time.monotonic()  # bytes that Ray Data holds back, and since when
        for piece in (piece for block in blocks for piece in cut(block, LARGEST_BLOCK_BYTES)):
            held += piece.nbytes
            is_due = time.monotonic() - began > self.longest
            rows = self.rows if is_due else int(self.rows * min(self._part(piece), 1))
            yield _padded(piece, rows - len(piece), max(self.full + 1 - held, 0) if is_due else 0)
            if is_due or held > self.full:
                held, began = 0, time.monotonic()

    def _part(self, block: pa.Table) -> float:
        """Return the fraction that the block is of the amount passed on together, by its bytes and its time."""
        times = ((pc.sum(block[f"__{stage}_seconds"]).as_py() or 0.0) / limit for stage, limit in self.seconds.items())
        return max(block.nbytes / self.size, sum(times))


def padding_of(block: pa.Table) -> int:
    """Return how many rows of the block are padding."""
    return int(pc.sum(pc.equal(block["__state"], PADDING)).as_py() or 0)


def without_padding(block: pa.Table) -> pa.Table:
    """Return the block without its padding."""
    return block.filter(pc.not_equal(block["__state"], PADDING)) if padding_of(block) else block


def _padded(block: pa.Table, rows: int, weight: int) -> pa.Table:
    """Return the block with `rows` rows of padding, of `weight` bytes in all; at least one row if `weight` is not 0."""
    rows = max(rows, 1 if weight else 0)
    if not rows:
        return block
    padding = settled_block({}, -1, [-1] * rows, PADDING)
    if weight:
        texts = pa.array(["\0" * weight, *[None] * (rows - 1)], pa.string())
        padding = padding.set_column(padding.column_names.index("__error_message"), "__error_message", texts)
    return joined([block, padding])
