"""The values that the five tasks pass to each other: how a partition's rows are read and prepared, and the results."""

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from overnight.tasks.engine.stage import Stage
from overnight.tasks.rows.result import Work
from overnight.tasks.state.pending_units import plan_read
from overnight.tasks.state.read_plan import Order, reorder
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

if TYPE_CHECKING:
    import ray.data

OperatorNames = Mapping[str, Sequence[str]]  # stage -> parts of the names of Ray Data's operators that do its work


@dataclass(frozen=True)
class Barrier(abc.ABC):
    """A step of the stream that must read all rows before the stream begins."""

    stage: Stage  # makes the tables that `take` gets
    kind: str  # of the step, for messages
    rows_at_once: int  # see `PreprocessStep`

    @abc.abstractmethod
    def is_passed(self, run: Run) -> bool:
        """Return True if an earlier attempt has read all rows."""

    @abc.abstractmethod
    def take(self, run: Run, tables: Iterable[pa.Table]) -> str:
        """Take the tables of all rows, in any order, and return a sentence for the log. The rows are read now."""

    @abc.abstractmethod
    def work_on(self, block: pa.Table, run: Run) -> Work:
        """Return the step's work in the stream, which is called once, with all live rows of `block`."""


@dataclass(frozen=True)
class Stream:
    """How rows are read and prepared: the stages before the first model."""

    read: Stage
    bytes_stay: bool  # columns of bytes are published: those of tables are, contents of files are not
    order: Order | None = None  # of the units; None: that of the listing
    seed: int | None = None  # of Ray Data's shuffle of rows; None: no shuffle
    steps: Stage | None = None
    sample: Location | None = None  # of a few rows that passed the steps; None before the trial of the steps
    barriers: tuple[Barrier, ...] = ()  # passed before the stream, in order

    def plan_read(self, run: Run) -> bool:
        """Write the order file of the attempt. Return True if the units are reordered and one row each."""
        plan_read(run)
        return reorder(run.order, self.order) if self.order else False


class Stager(abc.ABC):
    """What a stream does with the rows that have passed all models."""

    @abc.abstractmethod
    def stage(self, run: Run, dataset: "ray.data.Dataset", names: OperatorNames, sampled: "Sampled") -> "Streamed":
        """Run `dataset`, and stage its rows in parts. `names` has the names of its operators."""


@dataclass(frozen=True)
class Sampled:
    """Facts that a few sample rows show about the output of the models."""

    columns: pa.Schema | None = None  # after all models; None if the sample does not show them
    failed: tuple[str, pa.Table] | None = None  # a model failed for every row: its message, and the rows, quarantined
    error: str | None = None  # the model itself is the cause, and the stream does not start
    warnings: tuple[str, ...] = ()  # sentences for the receipt


@dataclass
class Streamed:
    """The result of a stream."""

    seconds: float = 0.0
    first_seconds: float = 0.0  # after which the first rows had passed the models
    first_rows: int = 0
    times: dict[str, tuple[str, str]] = field(default_factory=dict)  # a stage's first and last running Ray task, UTC
    write_seconds: float = 0.0  # of all writers together
    columns: pa.Schema | None = None  # after all models; None if unknown
    warnings: tuple[str, ...] = ()  # sentences for the receipt
    samples: dict[str, Any] = field(default_factory=dict)  # of the load, as columns: see `resources/sampler.py`
