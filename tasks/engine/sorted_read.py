"""A read whose rows are sorted, some at a time, so that rows with a common beginning or length follow one another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import RowIsolation

WINDOW_BYTES = 64 * 2**20  # of rows that a task sorts together, unless one block has more
SETTING = "shuffle.by"


@dataclass(frozen=True)
class SortedRead(Stage):
    """A read whose tasks sort their rows by the values of `by`, an expression, `WINDOW_BYTES` at a time."""

    read: Stage
    by: str

    label = counts_as = "ingest"

    def load(self, run: Run) -> "LoadedSortedRead":
        return LoadedSortedRead(self.read.load(run), Expression(self.by))


@dataclass(frozen=True)
class LoadedSortedRead:
    read: Loaded
    by: Expression

    def on(self, units: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        """Yield the same rows in sorted windows. Rows without a value, and rows that failed, come last."""
        for window in rebatch.rebatch_bytes(self.read.on(units, isolation), WINDOW_BYTES):
            yield self._sorted(window)

    def _sorted(self, block: pa.Table) -> pa.Table:
        rows, numbers = blocks.live_rows(block)
        if not len(rows):
            return block
        try:
            values, _ = self.by.evaluate(rows, SETTING, "ingest")
        except RowError:  # of the only row
            return block
        keys = blocks.scatter(values, numbers, len(block))
        try:
            order = pc.array_sort_indices(keys)  # stable, and nulls come last
        except (pa.ArrowNotImplementedError, TypeError):
            raise ContractError(
                f"{SETTING}: {self.by.source!r}: expected numbers, texts or times, which have an order, found "
                f"{keys.type}. Write an expression for one of them, such as length(text).",
                "ingest",
            ) from None
        return block.take(order)
