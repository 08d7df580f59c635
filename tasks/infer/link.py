"""One link of the chain that `inference` is: a model, and the steps between it and the next model.

A link holds what it needs from the other links, so that a worker does not need the chain.
"""

from dataclasses import dataclass

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
