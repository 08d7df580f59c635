"""The blocks that a Ray task passes on: of bounded bytes, and in time although the rows are slow.

Ray Data passes on the output of a task when it has the bytes of a full block, or when the task ends. A task lasts
longer than planned if its rows are slower than those of the sample. Its finished rows then get a weight: one empty row
with the bytes that a full block still lacks. Who takes the block drops the weight first.
"""

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.blocks import WEIGHT, settled_block
from overnight.tasks.rows.rebatch import cut, joined

LARGEST_BLOCK_BYTES = 32 * 2**20  # keeps memory small and lets the model start early; Ray Data's limit is 4 times this


def passed_on(blocks: Iterable[pa.Table], full: int, longest: float) -> Iterator[pa.Table]:
    """Yield the same rows in blocks of at most `LARGEST_BLOCK_BYTES`, with weights that make Ray Data pass them on.

    Ray Data passes on a block of `full` bytes. Rows wait at most about `longest` seconds for that.
    """
    held, began = 0, time.monotonic()  # bytes that Ray Data holds back, and since when
    for piece in (piece for block in blocks for piece in cut(block, LARGEST_BLOCK_BYTES)):
        held += piece.nbytes
        is_due = time.monotonic() - began > longest
        yield joined([piece, _weight(full + 1 - held)]) if is_due and held <= full else piece
        if is_due or held > full:
            held, began = 0, time.monotonic()


def without_weights(block: pa.Table) -> pa.Table:
    """Return the block without the empty rows that `passed_on` added."""
    is_weight = pc.equal(block["__state"], WEIGHT)
    return block.filter(pc.invert(is_weight)) if pc.any(is_weight).as_py() else block


def _weight(size: int) -> pa.Table:
    """Return a block of one empty row, which has `size` bytes."""
    weight = settled_block({}, -1, [-1], WEIGHT)
    place = weight.column_names.index("__error_message")
    return weight.set_column(place, "__error_message", pa.array(["\0" * size], pa.string()))
