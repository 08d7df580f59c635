"""The orders in which units may be read. The seed alone decides each permutation (NumPy's PCG64).

`files` moves whole files, and keeps the units of a file together. `blocks` moves runs of consecutive units with about
the same number of bytes. So a file or a block is still read from beginning to end. `rows` moves whole files and then
mixes all rows. To mix them, it must wait for every row of the partition, and it spills rows to disk. If each unit is
one row, `rows` is the same as `files`. `sorted` keeps the order of the listing, and sorts the rows that a task reads.
"""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from overnight.tasks.config.settings import AdjustableText, Leaf
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.state.read_plan import pack


class NoShuffle(Leaf):
    """Reads in the order of the listing."""

    kind: Literal["none"] = "none"

    def order(self, pending: pa.Table) -> np.ndarray:
        """Return the position (int64) in `pending` of each unit, in the order of reading: 0, 1, 2 and so on."""
        return np.arange(len(pending))


class Seeded(Leaf):
    """The base class of the shuffles whose order depends on a seed."""

    seed: Annotated[int, Field(ge=0, description="The same seed gives the same order.")] = 0


class ShuffleFiles(Seeded):
    """Reads files in random order."""

    kind: Literal["files"] = "files"

    def order(self, pending: pa.Table) -> np.ndarray:
        """Return the position (int64) in `pending` of each unit, in the order of reading. A file's units stay together.

        `pending` has a unit per row, in the order of the listing, and its column `path`.
        """
        path = pending["path"]  # a file's units are consecutive
        is_next = pc.not_equal(path[1:], path[:-1]).to_numpy()
        return _permute_groups(np.concatenate([np.zeros(min(len(path), 1), np.int64), np.cumsum(is_next)]), self.seed)


class ShuffleBlocks(Seeded):
    """Reads blocks of consecutive units in random order."""

    kind: Literal["blocks"] = "blocks"

    def order(self, pending: pa.Table) -> np.ndarray:
        """Return the position (int64) in `pending` of each unit, in the order of reading. Blocks stay together.

        `pending` has a unit per row, in the order of the listing, and its column `size` in bytes.
        """
        return _permute_groups(pack(pending["size"].to_numpy()), self.seed)


class ShuffleRows(ShuffleFiles):
    """Reads files in random order and mixes all rows."""

    kind: Literal["rows"] = "rows"  # type: ignore[assignment]


class Sorted(Leaf):
    """Reads in the order of the listing, and sorts the rows that a task reads, about 64 MiB at a time."""

    kind: Literal["sorted"] = "sorted"
    by: Annotated[
        AdjustableText,
        Field(
            min_length=1,
            description="A column of the source, or an expression in DuckDB's SQL over its columns. Rows without a "
            "value come last.",
            examples=["category", "length(text)"],
        ),
    ]

    @field_validator("by")
    @classmethod
    def _parse(cls, by: str) -> str:
        Expression(by)
        return by


def _permute_groups(groups: np.ndarray, seed: int) -> np.ndarray:
    """Return indices (int64) that put groups of rows in random order; the order within each group stays."""
    ranks = np.random.default_rng(seed).permutation(int(groups.max()) + 1 if len(groups) else 0)
    return np.argsort(ranks[groups], kind="stable") if len(groups) else np.arange(0)
