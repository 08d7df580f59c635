"""A link of the chain that a job's `inference` is: one model, and the steps between it and the next model.

A link has what its worker needs from the other links, so that the worker does not need the chain.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.state.stream import Steps


@dataclass(frozen=True)
class Link:
    """A model, and the steps that follow it, up to the next model.

    `prefix` begins the names of the columns that the model adds, and `earlier` has the prefixes of the models before
    it. `steps` is None if no step follows. `read` names the columns that later steps and models read, or the sink
    publishes: they stay, even if they are heavy. If `read` is None, all columns stay. `bytes_stay` is True if the
    source is a table, whose bytes are data like its other columns.
    """

    model: Predictor
    prefix: str = ""
    earlier: tuple[str, ...] = ()
    steps: Steps | None = None
    read: tuple[str, ...] | None = ()
    bytes_stay: bool = False


def without_unread(block: pa.Table, link: Link, made: Iterable[str]) -> pa.Table:
    """Return the block without heavy columns that nothing after the link reads.

    `made` names the model's columns, which stay.
    """
    if link.read is None:
        return block
    return drop_heavy(block, {*link.read, *made}, link.bytes_stay, link.earlier)
