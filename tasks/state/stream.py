"""What the five tasks hand on: how a partition's rows are read and prepared, and what came of them.

Nothing of a `Stream` is read before `infer` runs it. Its functions take the run, because each try of `infer` reads in
an order of its own, without what was staged before it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

Read = Callable[..., Iterator[pa.Table]]  # units (schema `read_plan.PENDING`) and `run` in, blocks of their rows out
Steps = Callable[..., Iterator[pa.Table]]  # a block, `run` and `isolation` in, blocks after every step out


@dataclass(frozen=True)
class Stream:
    """How rows are read and prepared.

    plan_read: writes the reading order of the rows that no staged part settles, for a run's attempt. datasource: of Ray
    Data, which reads in that order. sample: where a few rows are kept that went through the steps. bytes_stay: columns
    of bytes are published; a table's are, the contents of files are not. seed: of Ray Data's own shuffle of rows, None
    without it. steps: the preprocessing, None without any.
    """

    plan_read: Callable[[Run], Any]
    datasource: Callable[..., Any]  # given `run`
    read: Read
    sample: Location
    bytes_stay: bool
    seed: int | None = None
    steps: Steps | None = None


@dataclass(frozen=True)
class Sampled:
    """What a few rows show of those behind the models.

    columns: None where the rows do not show them. seconds_per_row: the workers' time; None where it was not measured.
    bytes_per_row: of a source row, in memory; 0 without rows. failed: what is said of a model that failed for every row
    that it was tried on, and these rows, settled.
    """

    columns: pa.Schema | None = None
    seconds_per_row: float | None = None
    bytes_per_row: float = 0.0
    failed: tuple[str, pa.Table] | None = None


@dataclass
class Streamed:
    """What came of a stream.

    seconds: that it took. first_seconds, first_rows: until the first rows were through the models, and how many; 0 if
    none came. write_seconds: that staging took, of all writers together. columns: as `Sampled` has them. warnings: for
    the receipt.
    """

    seconds: float = 0.0
    first_seconds: float = 0.0
    first_rows: int = 0
    write_seconds: float = 0.0
    columns: pa.Schema | None = None
    warnings: tuple[str, ...] = ()
