"""One link of the chain that `inference` is: a model, and the steps between it and the next model.

A link holds what it needs from the other links, so that a worker does not need the chain.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.state.stream import Steps


@dataclass(frozen=True)
class Link:
    """A model and what is done with its rows behind it.

    prefix: of the model's columns. earlier: the prefixes of the models before it. steps: None without any. read: the
    columns that steps and models behind this model read, or the sink publishes, whatever they weigh; None: all.
    bytes_stay: the source is a table, whose bytes are data like its other columns.
    """

    model: Predictor
    prefix: str = ""
    earlier: tuple[str, ...] = ()
    steps: Steps | None = None
    read: tuple[str, ...] | None = ()
    bytes_stay: bool = False


def without_unread(block: pa.Table, link: Link, made: Iterable[str]) -> pa.Table:
    """Return a block without heavy columns that nothing behind the link reads. `made` are the model's columns."""
    if link.read is None:
        return block
    return drop_heavy(block, {*link.read, *made}, link.bytes_stay, link.earlier)
