"""The trial of a model before the stream: it loads the model, and runs it on a few rows."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import pyarrow as pa

from overnight.tasks.engine.segment import Segment, SegmentWorker
from overnight.tasks.errors import InvalidValues, RowError
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.run import Run


@dataclass(frozen=True)
class Trial:
    """The measurements of a model on a sample of rows.

    `seconds_a_row` is the time per row that the model got, after its warm-up. `memory` is the number of bytes that
    belong to the model's process alone. `columns` has the names and types of the columns that
    the model added, without its prefix. `behind` is a block: the sample after the model and the steps that follow it.
    `held` is what keeps the process in which the model is loaded, see `trial_runner.py`; None if there is none.
    """

    seconds_a_row: float
    memory: int
    columns: pa.Schema
    behind: pa.Table = field(default_factory=blocks.HIDDEN.empty_table, repr=False)
    held: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Failed:
    """The result of a trial in which every row failed; `block` has these rows, quarantined.

    `is_the_models` is True if the model is to blame: the sample had several rows, and each raised an error of the
    model. It is False if a row raised a `RowError` about its own values, or ended the process.
    """

    block: pa.Table
    is_the_models: bool = False

    def __str__(self) -> str:
        first = self.block.slice(0, 1).to_pylist()[0]
        count = f"all {len(self.block)} rows" if len(self.block) > 1 else "the one row"
        error = f"{first['__error_type']}: {first['__error_message']}".splitlines()[0].rstrip(".")
        return f"{count} of the trial failed, the first, {first['row_id']}, with {error}"


class ModelTrial:
    """Loads the model of `link`, and measures it on a sample of rows, in a process of its own.

    That process may end at any time. A new one loads the model again. After the trial, it may become the first worker
    of the stream. Raise `JobError` if the model cannot be loaded.
    """

    def __init__(self, link: Link, run: Run) -> None:
        self._link = link
        self._worker = Worker(link, run, is_trial=True)
        self._in_stream: SegmentWorker | None = None

    def on(self, sample: pa.Table) -> Trial | Failed | None:
        """Run the block `sample` through the model and the steps after it, as a worker would.

        Return a `Trial` with the measurements, even if some rows fail. Return `Failed` if every row failed, and None if
        `sample` is empty. Raise `ContractError` if a column that it reads is missing, or its result is not valid. If a
        row ends the process, the caller calls again in a new one, which isolates that row.
        """
        worker = self._worker
        if not len(sample):
            return None
        with worker.rows.guard.at(sample) as isolation:
            for _ in range(2 if self._link.model.needs_warm_up() else 1):
                worker.rows.errors = []
                started, seen = time.perf_counter(), worker.rows_seen
                done = worker.run(sample, isolation)
                seconds = time.perf_counter() - started
            good, _ = blocks.live_rows(sample.filter(pa.array(done["__state"].to_numpy() == blocks.LIVE)))
            if not len(good):
                return _failed(done, blocks.live_rows(sample)[0], worker.rows.errors or [])
            seconds /= max(worker.rows_seen - seen, 1)
            behind = rebatch.joined(worker.behind(done, isolation))
        fields = [field for field in blocks.live_rows(done)[0].schema if field.name in worker.made]
        columns = pa.schema([field.with_name(field.name.removeprefix(self._link.prefix)) for field in fields])
        return Trial(seconds, _own_memory(), columns, blocks.live_block(behind))

    def become(self, segment: Segment, run: Run, is_restarted: bool) -> None:
        """Become a worker of the stream, with the model that is already loaded."""
        link = segment.stages[-1]
        assert isinstance(link, Link)
        self._in_stream = SegmentWorker(segment, run, Worker(link, run, tried=self._worker), is_restarted)

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        """Return what the worker makes of a block, after `become`."""
        assert self._in_stream
        return self._in_stream(block)


def _failed(done: pa.Table, rows: pa.Table, errors: list[Exception]) -> Failed:
    """Return the failed trial of `rows`; `errors` is what they raised. A row that ended its process has no error."""
    refused = [isinstance(error, RowError) and not isinstance(error, InvalidValues) for error in errors]
    is_the_models = len(errors) == len(rows) > 1 and not any(refused)
    return Failed(blocks.drop_live_columns(done), is_the_models)


def _own_memory() -> int:
    """Return the bytes that belong to this process alone."""
    return int(psutil.Process().memory_full_info().uss)
