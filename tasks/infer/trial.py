"""The trial of a model before the stream, on a few rows that passed the steps, and what the columns then show."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import pyarrow as pa

from overnight.tasks.engine.segment import Segment, SegmentWorker
from overnight.tasks.errors import ContractError, InvalidValues, RowError, did_you_mean
from overnight.tasks.infer.chat.prompts import refuse_bytes
from overnight.tasks.infer.link import Link, heavy_columns
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.arrow_types import columns_except
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.workers.row_isolation import RowIsolation

SLOW_SECONDS = 5.0  # eight rows of 100 s would take a quarter of an hour


@dataclass(frozen=True)
class Trial:
    """The measurements of a model on a sample of rows.

    `behind` is a block: the sample after the model and the steps that follow it.
    """

    seconds_a_row: float  # that the model got, after its warm-up
    memory: int  # bytes that belong to the model's process alone
    columns: pa.Schema  # that the model added, without its prefix
    behind: pa.Table = field(default_factory=blocks.HIDDEN.empty_table, repr=False)
    process: Any = field(default=None, repr=False)  # a `TrialProcess` or its actor, in which the model is loaded


@dataclass(frozen=True)
class Failed:
    """The result of a trial in which every row failed; `block` has these rows, quarantined.

    `is_the_models` is True if the model is to blame: each of several rows raised an error of the model. It is False if
    a row raised a `RowError` about its own values, or ended the process.
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

    Further models may use its engine. After the trial, it may become the first worker of the stream.
    """

    def __init__(self, link: Link, run: Run) -> None:
        self._run = run
        self._workers = {link.label: Worker(link, run, is_trial=True)}
        self._in_stream: SegmentWorker | None = None

    def on(self, sample: pa.Table, link: Link) -> Trial | Failed | None:
        """Run the block `sample` through the model and the steps after it. Return None if it is empty."""
        if not len(sample):
            return None
        if link.label not in self._workers:
            self._workers[link.label] = Worker(link, self._run, is_trial=True)
        worker = self._workers[link.label]
        with worker.rows.guard.at(sample) as isolation:
            measures = worker.memory.measured() if worker.memory and worker.knows(sample) else None
            if measures:
                block, seconds_a_row = worker.run(sample, isolation), measures["seconds_a_row"]
            else:
                _ = worker.loaded
                block, seconds_a_row = _measured(link, worker, sample, isolation)
            sample = sample[: len(block)]
            is_live = pa.array(block["__state"].to_numpy() == blocks.LIVE)
            if not len(blocks.live_rows(sample.filter(is_live))[0]):
                errors = worker.rows.errors or []  # a row that ended its process has none
                refuses = any(isinstance(error, RowError) and not isinstance(error, InvalidValues) for error in errors)
                is_the_models = len(errors) == len(blocks.live_rows(sample)[0]) > 1 and not refuses
                return Failed(blocks.drop_live_columns(block), is_the_models)
            behind = rebatch.joined(worker.behind(block, isolation))
        columns = []
        for column in blocks.live_rows(block)[0].schema:
            if column.name in worker.outputs:
                columns.append(column.with_name(column.name.removeprefix(link.prefix)))
        measures = measures or {"seconds_a_row": seconds_a_row, "memory": psutil.Process().memory_full_info().uss}
        if worker.memory:
            worker.memory.keep_measures(measures)
        return Trial(seconds_a_row, int(measures["memory"]), pa.schema(columns), blocks.live_block(behind))

    def become(self, segment: Segment, run: Run, is_restarted: bool) -> None:
        """Become a worker of the stream, with the models that are already loaded."""
        links = [stage for stage in segment.stages if isinstance(stage, Link)]
        models = [Worker(link, run, trial=self._workers.get(link.label)) for link in links]
        self._in_stream = SegmentWorker(segment, run, models, is_restarted)

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        """Return what the worker makes of a block, after `become`."""
        assert self._in_stream
        return self._in_stream(block)


def _measured(link: Link, worker: Worker, sample: pa.Table, isolation: RowIsolation) -> tuple[pa.Table, float]:
    """Return `sample` after the model, and the seconds for a row. The first row is enough if it is slow twice."""
    if link.model.needs_warm_up() and not isolation.is_on:
        _, seconds_a_row = _run(worker, sample[:1], isolation)
        if seconds_a_row > SLOW_SECONDS:  # or only the first call is
            block, seconds_a_row = _run(worker, sample[:1], isolation)
            if seconds_a_row > SLOW_SECONDS and not worker.rows.errors:
                return block, seconds_a_row
    return _run(worker, sample, isolation)


def _run(worker: Worker, rows: pa.Table, isolation: RowIsolation) -> tuple[pa.Table, float]:
    worker.rows.errors = []
    start, earlier_rows = time.perf_counter(), worker.model_rows
    block = worker.run(rows, isolation)
    return block, (time.perf_counter() - start) / max(worker.model_rows - earlier_rows, 1)


def read_sample(location: Location) -> pa.Table:
    """Return the block of sample rows that the preprocessing trial wrote, without settled rows."""
    with location.open() as file:
        return blocks.live_block(pa.ipc.open_file(file.read()).read_all())


def bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Return the mean bytes of a source row without its heavy columns, except those in `keep`; 0 if there is no row."""
    light = blocks.without(sample, sorted(heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)))
    return blocks.live_rows(light)[0].nbytes / len(sample) if len(sample) else 0.0


def columns_made(
    sample: pa.Table, trials: Sequence[Trial | None], keep: Sequence[str], bytes_stay: bool = False
) -> pa.Schema | None:
    """Return the visible columns of rows after all models, or None if the sample does not show them."""
    if not len(sample) or None in trials:
        return None
    if trials and trials[-1]:
        behind = trials[-1].behind
        return blocks.live_rows(behind)[0].schema if len(behind) else None
    columns = blocks.live_rows(sample)[0].schema
    heavy = heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)
    return columns_except(columns, heavy)


def require_inputs(link: Link, sample: pa.Table) -> None:
    """Raise `ContractError` if the sample lacks a column that the model reads, or a prompt would have bytes in it."""
    rows = blocks.live_rows(sample)[0]
    names = rows.column_names
    for name in link.model.inputs() or ():
        if name not in names:
            raise ContractError(
                f"{link.label}: expected column {name!r}, found {', '.join(names)}{did_you_mean(name, names)}. "
                "Name the column in the model's settings, or make it before the model.",
                "infer",
            )
    for name in link.model.prompt_columns():
        refuse_bytes(f"{link.label}: {name}", rows[name])


def warnings_of_replaced(sample: pa.Table, links: Sequence[Link], trials: Sequence[Trial | None]) -> Iterator[str]:
    """Yield a sentence for each column that a model replaces, because the rows have a column of that name before."""
    for link, trial in zip(links, trials, strict=True):
        if trial is None:
            return
        earlier = blocks.live_rows(sample)[0].column_names
        for column in trial.columns.names:
            name = link.prefix + column
            if name in earlier:
                yield (
                    f"{link.label}: the model replaces the column {name!r}, which the rows have before it. To keep "
                    "both, rename that column before the model."
                )
        sample = trial.behind
