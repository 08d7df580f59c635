"""A link of the chain that a job's `inference` is: one model, and the steps between it and the next model.

A link has what its worker needs from the other links, so that the worker does not need the chain.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import RowIsolation

if TYPE_CHECKING:
    from overnight.tasks.infer.worker import Worker


@dataclass(frozen=True)
class Link(Stage):
    """A model, and the steps that follow it, up to the next model.

    `prefix` begins the names of the columns that the model adds, and `earlier` has the prefixes of the models before
    it. `steps` is None if no step follows. `read` names the columns that later steps and models read, or the sink
    publishes. Other heavy columns (bytes, and arrays of two or more dimensions) are dropped. If `read` is None, all
    columns stay. If `bytes_stay`, bytes are not heavy: the source is a table, whose bytes are data like its other
    columns.

    After a trial of the model, `pace` is its seconds per row, otherwise 0. `columns` are then the columns that it adds,
    without its prefix.
    """

    model: Predictor
    prefix: str = ""
    earlier: tuple[str, ...] = ()
    steps: Stage | None = None
    read: tuple[str, ...] | None = ()
    bytes_stay: bool = False
    pace: float = 0.0
    columns: pa.Schema | None = None

    counts_as = "infer"

    @property
    def label(self) -> str:
        return f"inference {self.model.name or self.model.kind}"

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

    Heavy columns that nothing after the link reads are left out then. The model's columns stay if a trial showed them,
    or if they have a prefix. Others of them are not recognized, and are left out, too.
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
        made = [link.prefix + column.name for column in link.columns or ()]
        earlier = (*link.earlier, *([link.prefix] if link.prefix else []))
        for block in self.steps.on(blocks, isolation):
            yield without_unread(block, replace(link, earlier=earlier), made)


def without_unread(block: pa.Table, link: Link, made: Iterable[str]) -> pa.Table:
    """Return the block without the heavy columns that no later step, model or sink reads.

    Columns of bytes, and of arrays of two or more dimensions, are heavy. `link.read` names the columns that are read.
    `made` names the columns that the model of `link` added, which stay.
    """
    if link.read is None:
        return block
    return drop_heavy(block, {*link.read, *made}, link.bytes_stay, link.earlier)
