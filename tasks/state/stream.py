"""The values that the five tasks pass to each other: how a partition's rows are read and prepared, and the results.

Earlier tasks make a `Stream`, and `infer` runs it. The functions of a `Stream` take the run as an argument. So each try
of `infer` reads in its own order, without the rows that were staged before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

Read = Callable[..., Iterator[pa.Table]]  # units (schema `read_plan.PENDING`) and `run` in, blocks of their rows out
Steps = Callable[..., Iterator[pa.Table]]  # a block, `run` and `isolation` in, blocks after every step out
OperatorNames = Mapping[str, Sequence[str]]  # stage -> parts of the names of Ray Data's operators that do its work


@dataclass(frozen=True)
class FirstReading:
    """A reading of all rows before the stream, which finds the duplicates for one `deduplicate` step.

    `number` counts these steps from 0. `keys` makes tables from a block, with one key per row
    (`duplicates.places.KEYS`). `duplicates` takes all these tables and yields tables of the rows to drop
    (`duplicates.places.PLACES`).
    """

    number: int
    keys: Steps
    duplicates: Callable[[Iterable[pa.Table]], Iterator[pa.Table]]


@dataclass(frozen=True)
class Stream:
    """How rows are read and prepared.

    `plan_read` writes the reading order of a run's attempt: the units with rows that no staged part settles.
    `datasource` makes a datasource of Ray Data, which reads in that order. `read` reads the rows of units. `sample` is
    the place of a few rows that passed the steps. `bytes_stay` is True if columns of bytes are published: columns of
    tables are, contents of files are not. `seed` is the seed of Ray Data's shuffle of rows; None for no shuffle.
    `steps` runs the preprocessing; None without steps. `first_readings` run before the stream, in order.
    """

    plan_read: Callable[[Run], Any]
    datasource: Callable[..., Any]  # takes `run`
    read: Read
    sample: Location
    bytes_stay: bool
    seed: int | None = None
    steps: Steps | None = None
    first_readings: tuple[FirstReading, ...] = ()


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
