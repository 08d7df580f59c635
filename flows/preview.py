"""A preview: a few rows of a job are read, prepared, run through every model and shown, all in this process.

It uses neither Prefect nor Ray, holds no lease and publishes nothing. Its temporary folder is removed at the end.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.flows.job.pipeline import compile_job
from overnight.flows.schedule.partitions import resolve_partition
from overnight.tasks.errors import JobError, explain
from overnight.tasks.infer.in_process import (
    Link,
    drop_heavy,
    heavy_columns,
    release_memory,
    require_inputs,
    without_unread,
)
from overnight.tasks.infer.kinds import Predictor
from overnight.tasks.ingest.in_process import read_first
from overnight.tasks.preprocess.in_process import Steps, build
from overnight.tasks.preprocess.kinds import PreprocessStep
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.run import Run, new_attempt, now
from overnight.tasks.storage.location import Location, expand
from overnight.tasks.workers import user_output
from overnight.tasks.workers.row_isolation import TOGETHER
from overnight.tasks.write.in_process import Outcome, outcome


@dataclass(frozen=True)
class Preview:
    """The rows of a preview. It behaves as their Arrow table, and a notebook shows it as HTML."""

    job: str
    partition: str
    table: pa.Table  # with the columns and types that a run publishes
    # `row_id` and the heavy columns that a run does not publish, such as decoded images, as the first model gets them.
    left_out: pa.Table = field(repr=False)  # pictures fill the screen with bytes
    quarantine: pa.Table
    filtered: int  # the number of source rows that no output row was made of
    # By the place in the job file, `inference.0 resnet`. The time to load a model is `inference.0 resnet: load`.
    seconds: dict[str, float]
    warnings: tuple[str, ...] = ()
    rows_read: int = 0  # of the source

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the table: `column_names`, `to_pylist`, `to_pandas` and the like."""
        if name.startswith("__"):  # for pickle and copy, which look before `table` exists
            raise AttributeError(name)
        return getattr(self.table, name)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from overnight.flows.preview_html import as_html

        return as_html(self)


def preview(job: Job, rows: int = 8, partition: str | None = None) -> Preview:
    """Run the first rows of the listing through all steps and models of a job, in this process, on its devices.

    Errors are those of a run. If a crash of a model ends the process, the preview ends with it.
    """
    if rows < 1:
        raise JobError(f"rows: expected a number of rows of at least 1, found {rows}.")
    day = resolve_partition(job, partition, None, datetime.now(UTC))
    for _, text in job.source.dated_texts():
        expand(text, day)
    with tempfile.TemporaryDirectory(prefix="overnight-preview-") as folder, user_output.left_alone():
        return _InProcess(job, run_in(folder, job, day)).preview(rows)


@dataclass
class _InProcess:
    """The stages of one job, run one after another, with the time of each and the warnings of models so far."""

    job: Job
    run: Run
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    engine: Any = None  # of the model before, if the next one shares it

    def preview(self, rows: int) -> Preview:
        with self._stage("ingest", "ingest"):
            first = read_first(self.run, self.job.source, rows)
        block = first.block
        for name, step in _steps(self.job):
            block = self._step(block, step, name, "preprocess")
        left_out = _left_out(self.job, block)
        block = self._models(block)
        with self._stage("write"):
            result: Outcome = outcome(block, self.run, self.job.sink, first.schema)
        return Preview(
            job=self.job.name,
            partition=self.run.partition,
            table=result.table,
            left_out=left_out,
            quarantine=result.quarantine,
            filtered=result.filtered,
            seconds=self.seconds,
            warnings=(*first.warnings, *self.warnings),
            rows_read=len(first.block),
        )

    def _models(self, block: pa.Table) -> pa.Table:
        chain = compile_job(self.job).links
        if not chain:
            return drop_heavy(block, self.job.sink.keep_columns, not self.job.source.rows_are_files)
        numbers = [number for number, entry in enumerate(self.job.inference) if isinstance(entry, Predictor)]
        for link, later, number, steps in zip(chain, [*chain[1:], None], numbers, self.job.steps_behind, strict=True):
            if not len(blocks.live_block(block)):
                break  # no row is left for the model
            is_kept = later is not None and later.shares_engine
            block, columns = self._model(block, link, f"inference.{number} {link.model.shown_name()}", is_kept)
            block = self._steps_behind(block, steps, number + 1)
            block = without_unread(block, link, columns)
        last = self.job.last_steps
        return self._steps_behind(block, last, len(self.job.inference) - len(last))

    def _steps_behind(self, block: pa.Table, steps: Sequence[PreprocessStep], first: int) -> pa.Table:
        for number, step in enumerate(steps, first):
            block = self._step(block, step, f"inference.{number} {_name(step)}", "infer")
        return block

    def _model(self, block: pa.Table, link: Link, name: str, is_kept: bool) -> tuple[pa.Table, set[str]]:
        """Return the block with the model's columns, and their names. The model is released unless it `is_kept`."""
        with self._stage("infer", f"{name}: load"):
            require_inputs(link, blocks.live_block(block))
            model = link.model.for_preview()
            worker = replace(link, model=model, steps=None, read=None).load(self.run)
            if model.fallback:
                self.warnings.append(model.fallback)
        with self._stage("infer", name):
            result = rebatch.joined(worker.on([block], TOGETHER))
        columns = worker.outputs
        self.engine = worker if is_kept else None
        del worker
        release_memory()
        return result, columns

    def _step(self, block: pa.Table, step: PreprocessStep, name: str, stage: str) -> pa.Table:
        with self._stage(stage, name):
            build(step)
            steps = Steps((step,), behind=name if stage == "infer" else None)
            return rebatch.joined(steps.load(self.run).on([block], TOGETHER))

    @contextmanager
    def _stage(self, stage: str, name: str = "") -> Iterator[None]:
        """Add the seconds of the body as `name`. Raise its errors as those of a stage."""
        start = time.perf_counter()
        try:
            yield
        except Exception as error:
            raise explain(error, stage) from error
        if name:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run_in(folder: str, job: Job, day: str) -> Run:
    """Return a run whose files are all in `folder`. It has no fingerprint, because nothing is compared with it."""
    return Run(
        job=job.name,
        partition=day,
        partition_column=job.sink.partition_column,
        state=Location(folder),
        sink=Location(folder),
        generation="none",
        attempt=new_attempt(),
        fingerprint="",
        ingredients={},
        started_at=now(),
        keep_columns=tuple(job.sink.keep_columns),
    )


def _steps(job: Job) -> Iterator[tuple[str, PreprocessStep]]:
    """Yield the steps before the first model, each with its place in the job file and its name."""
    preparation = job.preparation
    first = len(job.preprocess) - len(preparation)  # below 0 for decode_image, which the job file need not name
    for number, step in enumerate(preparation, first):
        section = f"preprocess.{number}" if number >= 0 else "preprocess"
        yield f"{section} {_name(step)}", step
    for number, step in enumerate(job.steps[len(preparation) :]):
        yield f"inference.{number} {_name(step)}", step


def _name(step: PreprocessStep) -> str:
    return str(getattr(step, "target", None) or step.kind)


def _left_out(job: Job, block: pa.Table) -> pa.Table:
    """Return `row_id` and the heavy columns of the live rows that a run does not publish."""
    rows, _ = blocks.live_rows(block)
    heavy = heavy_columns(block, bytes_stay=not job.source.rows_are_files) - set(job.sink.keep_columns)
    return rows.select(["row_id", *(name for name in rows.column_names if name in heavy)]) if heavy else pa.table({})
