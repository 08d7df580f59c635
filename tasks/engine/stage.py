"""A stage of a job: a read, preprocessing steps, or a model with the steps behind it.

A stage is a value: settings that travel to the processes which run them. It knows neither Ray nor Prefect. The room of
the stage defines it, and `segment.py` runs it.
"""

import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import RowIsolation


class Loaded(Protocol):
    """A stage that is ready in one process."""

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        """Yield blocks from blocks, or from tables of units for a read. Without `isolation`, the supervisor decides."""


@dataclass(frozen=True)
class Stage(abc.ABC):
    """Settings of work on rows, with which a process makes a `Loaded`."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Return the name of the stage in messages, in reports, and in the names of Ray Data's operators."""

    @property
    @abc.abstractmethod
    def counts_as(self) -> str:
        """Return the task to which receipt and progress count the stage: `ingest`, `preprocess` or `infer`."""

    @abc.abstractmethod
    def load(self, run: Run) -> Loaded:
        """Prepare this process for the stage. A process does this once."""
