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
    publishes. Other heavy columns (bytes, and arrays of two or more dimensions) are dropped. If `read` is None, all
    columns stay. If `bytes_stay`, bytes are not heavy: the source is a table, whose bytes are data like its other
    columns.
    """

    model: Predictor
    prefix: str = ""
    earlier: tuple[str, ...] = ()
    steps: Steps | None = None
    read: tuple[str, ...] | None = ()
    bytes_stay: bool = False


def without_unread(block: pa.Table, link: Link, made: Iterable[str]) -> pa.Table:
    """Return the block without the heavy columns that no later step, model or sink reads.

    Columns of bytes, and of arrays of two or more dimensions, are heavy. `link.read` names the columns that are read.
    `made` names the columns that the model of `link` added, which stay.
    """
    if link.read is None:
        return block
    return drop_heavy(block, {*link.read, *made}, link.bytes_stay, link.earlier)
