"""A link of the chain that a job's `inference` is: one model, and the steps between it and the next model.

A link has what its worker needs from the other links, so that the worker does not need the chain.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.infer.predictor import CALLS_TO_CHOOSE_FROM, Predictor
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.rows import blocks, nested_rows, tensors
from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import RowIsolation

if TYPE_CHECKING:
    from overnight.tasks.infer.worker import Worker

UNKNOWN_RANK = 2  # of a column of nulls, which counts as heavy


@dataclass(frozen=True)
class Link(Stage):
    """A model, and the steps that follow it, up to the next model. Heavy columns that nothing later reads are dropped.

    `pace` and `columns` are known after a trial of the model: its seconds per row, and the columns that it adds.
    """

    model: Predictor
    prefix: str = ""  # begins the names of the columns that the model adds
    earlier: tuple[str, ...] = ()  # the prefixes of the models before it
    steps: Stage | None = None
    read: tuple[str, ...] | None = ()  # the columns that later steps, models or the sink read; None: all
    bytes_stay: bool = False  # see `heavy_columns`
    shares_engine: bool = False  # with the link before it, whose workers run this model too
    pace: float = 0.0
    columns: pa.Schema | None = None  # without the prefix
    memory: ModelMemory | None = None  # of the model's results by row

    counts_as = "infer"

    @property
    def label(self) -> str:
        return f"inference {self.model.name or self.model.kind}"

    def rows_at_once(self, per_call: int) -> int:
        """Return the rows that a worker takes for calls of `per_call` rows: more if some may be known."""
        return max(self.model.rows_at_once(per_call), per_call * (CALLS_TO_CHOOSE_FROM if self.memory else 1))

    def load(self, run: Run) -> "Worker":
        """Load the model. Raise `JobError` if it cannot be loaded."""
        from overnight.tasks.infer.worker import Worker

        return Worker(self, run)

    def cut(self) -> "tuple[Link, StepsBehind | None]":
        """Return the model without its steps, and its steps, for a model that should not wait for them."""
        if self.steps is None:
            return self, None
        return replace(self, steps=None, read=None), StepsBehind(self)


@dataclass(frozen=True)
class StepsBehind(Stage):
    """The steps of a link, in other processes than its model.

    The model's heavy columns stay if a trial showed them, or if they have a prefix.
    """

    link: Link

    counts_as = "infer"

    @property
    def label(self) -> str:
        assert self.link.steps
        return self.link.steps.label

    def load(self, run: Run) -> "LoadedStepsBehind":
        assert self.link.steps
        return LoadedStepsBehind(self.link, self.link.steps.load(run))


@dataclass(frozen=True)
class LoadedStepsBehind:
    link: Link
    steps: Loaded

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        link = self.link
        outputs = [link.prefix + column.name for column in link.columns or ()]
        if link.prefix:
            link = replace(link, earlier=(*link.earlier, link.prefix))
        for block in self.steps.on(blocks, isolation):
            yield without_unread(block, link, outputs)


def without_unread(block: pa.Table, link: Link, outputs: Iterable[str]) -> pa.Table:
    """Return the block without the heavy columns that nothing later reads. `outputs` of the link's model stay."""
    if link.read is None:
        return block
    return drop_heavy(block, {*link.read, *outputs}, link.bytes_stay, link.earlier)


def heavy_columns(block: pa.Table, earlier: tuple[str, ...] = (), bytes_stay: bool = False) -> set[str]:
    """Return the names of the columns that are too heavy to publish: bytes, and arrays of two or more dimensions.

    With `bytes_stay`, bytes are data, as in a table. Columns that begin with a prefix in `earlier` are not heavy.
    """
    table = blocks.visible(block)
    if nested_rows.COLUMN in block.column_names:
        table, _ = blocks.live_rows(block)
    heavy = set()
    for field in table.schema:
        if earlier and field.name.startswith(earlier):
            continue
        is_bytes = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
        is_array = field.type == tensors.TENSOR and (tensors.rank(table[field.name]) or UNKNOWN_RANK) > 1
        if (is_bytes and not bytes_stay) or is_array:
            heavy.add(field.name)
    return heavy


def drop_heavy(
    block: pa.Table, keep: Iterable[str], bytes_stay: bool = False, earlier: tuple[str, ...] = ()
) -> pa.Table:
    """Return the block without its heavy columns, except those in `keep`."""
    heavy = heavy_columns(block, earlier, bytes_stay)
    return blocks.leaving_out(block, sorted(heavy - set(keep)))
