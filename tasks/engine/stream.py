"""The values that the five tasks pass to each other: how a partition's rows are read and prepared, and the results."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from overnight.tasks.duplicates.rule import Rule
from overnight.tasks.engine.stage import Stage
from overnight.tasks.state.pending_units import plan_read
from overnight.tasks.state.read_plan import Order, reorder
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

if TYPE_CHECKING:
    import ray.data

OperatorNames = Mapping[str, Sequence[str]]  # stage -> parts of the names of Ray Data's operators that do its work


@dataclass(frozen=True)
class FirstReading:
    """A reading of all rows before the stream, which finds the duplicates for one `deduplicate` step.

    `number` counts these steps from 0. `keys` makes tables from a block, with one key per row
    (`duplicates.places.KEYS`). `rule` compares the keys.
    """

    number: int
    keys: Stage
    rule: Rule


@dataclass(frozen=True)
class Stream:
    """How rows are read and prepared: the stages before the first model.

    `sample` is the place of a few rows that passed the steps, None before the trial of the steps. `bytes_stay` is True
    if columns of bytes are published: columns of tables are, contents of files are not. `order` puts the units in
    another order than that of the listing; None keeps it. `seed` is the seed of Ray Data's shuffle of rows; None for no
    shuffle. `steps` is None without steps. `first_readings` run before the stream, in order.
    """

    read: Stage
    bytes_stay: bool
    order: Order | None = None
    seed: int | None = None
    steps: Stage | None = None
    sample: Location | None = None
    first_readings: tuple[FirstReading, ...] = ()

    def plan_read(self, run: Run) -> bool:
        """Write the order file of the run's attempt: the units with rows that no staged part settles, in `order`.

        Return True if the units were put in order, and each is known to be one row.
        """
        plan_read(run)
        return reorder(run.order, self.order) if self.order else False


class Stager(abc.ABC):
    """What a stream does with the rows that have passed all models."""

    @abc.abstractmethod
    def stage(self, run: Run, dataset: "ray.data.Dataset", names: OperatorNames, sampled: "Sampled") -> "Streamed":
        """Run `dataset`, and stage its rows in parts. `names` has the names of its operators."""


@dataclass(frozen=True)
class Sampled:
    """Facts that a few sample rows show about the output of the models.

    `columns` has the columns and types of rows after all models; None if the sample does not show them. If a model
    failed for every sample row, `failed` has its message and a block of these rows, quarantined. If the model itself is
    the cause, `error` is the reason why the stream does not start. `warnings` are sentences for the receipt.
    """

    columns: pa.Schema | None = None
    failed: tuple[str, pa.Table] | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass
class Streamed:
    """The result of a stream.

    `seconds` is its duration. The first `first_rows` rows had passed the models after `first_seconds`; both are 0 if no
    row passed. `times` maps a stage to the first and the last moment at which it had a running Ray task (UTC, ISO
    8601). `write_seconds` is the time that all writers together took for staging. `columns` has the columns and types
    of rows after all models, None if unknown. `warnings` are sentences for the receipt.
    """

    seconds: float = 0.0
    first_seconds: float = 0.0
    first_rows: int = 0
    times: dict[str, tuple[str, str]] = field(default_factory=dict)
    write_seconds: float = 0.0
    columns: pa.Schema | None = None
    warnings: tuple[str, ...] = ()
