"""The values that the five tasks pass on: how a partition's rows are read and prepared, and the results.

`infer` runs a `Stream`; nothing is read before. Its functions take the run as an argument. Each try of `infer` reads in
its own order, without the rows that were staged before it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from overnight.tasks.rows.part_size import ROWS_A_PART
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

Read = Callable[..., Iterator[pa.Table]]  # units (schema `read_plan.PENDING`) and `run` in, blocks of their rows out
Steps = Callable[..., Iterator[pa.Table]]  # a block, `run` and `isolation` in, blocks after every step out


@dataclass(frozen=True)
class FirstReading:
    """A reading of all rows before the stream, which decides the duplicates of one `deduplicate`.

    `keys` makes tables of keys (`duplicates.places.KEYS`) of a block. `duplicates` yields the rows that go.
    """

    number: int
    keys: Steps
    duplicates: Callable[[Iterable[pa.Table]], Iterator[pa.Table]]


@dataclass(frozen=True)
class Stream:
    """How rows are read and prepared.

    `plan_read` writes the reading order of the rows that no staged part settles, for a run's attempt. `datasource` is
    Ray Data's, and reads in that order. `sample` is the place of a few rows that passed the steps. `bytes_stay` is True
    if columns of bytes are published, as for tables; the contents of files are not. `seed` is that of Ray Data's own
    shuffle of rows, or None. `steps` is the preprocessing, or None. `first_readings` come before it, in order.
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

    `columns` is None if the rows do not show them. `rows_per_part` is the job's setting, or follows from the rows.
    `failed` has the message of a model that failed for each of its sample rows, and these rows, settled. `error` has
    the reason that no row is read, if that is the model's fault.
    """

    columns: pa.Schema | None = None
    rows_per_part: int = ROWS_A_PART
    failed: tuple[str, pa.Table] | None = None
    error: str | None = None


@dataclass
class Streamed:
    """The result of a stream.

    `seconds` is its duration. `first_seconds` and `first_rows` are the time until the first rows had passed the models,
    and their number; 0 if there were none. `write_seconds` is the time for staging of all writers together. `columns`
    are those of `Sampled`. `warnings` are for the receipt.
    """

    seconds: float = 0.0
    first_seconds: float = 0.0
    first_rows: int = 0
    write_seconds: float = 0.0
    columns: pa.Schema | None = None
    warnings: tuple[str, ...] = ()
