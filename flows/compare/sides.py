"""Get the rows of both sides of a comparison: computed in this process on the same drawn rows, or published ones.

Nothing is published or kept. Drawn rows are read once, into a temporary folder. One side computes them after the other,
so that the memory holds the models of one. The first rows show how many more `extend` must add.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.flows.job.model import Job
from overnight.flows.job.pipeline import compile_job
from overnight.flows.ledger.results import Result
from overnight.flows.preview import run_in
from overnight.flows.report.spending import total_of, uses_of
from overnight.tasks.engine.stage import Loaded
from overnight.tasks.errors import OvernightError, explain
from overnight.tasks.infer.in_process import drop_heavy, release_memory
from overnight.tasks.ingest.in_process import DrawnRows, draw_rows
from overnight.tasks.preprocess.in_process import Steps
from overnight.tasks.preprocess.kinds import PartitionStep
from overnight.tasks.rows.agreement import hashes_of, rows_needed
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.workers import user_output
from overnight.tasks.workers.row_isolation import TOGETHER
from overnight.tasks.write.in_process import describe, outcome, summary

NO_ROWS = pa.table({"row_id": pa.array([], pa.string())})


@dataclass
class Side:
    """One side: its rows, and what they took. `record` is its receipt, or has the same keys as far as they are known.

    `rows_per_second` is without the loading of models. `quarantined` has row ids and reasons. `more_rows` rows, which
    only this side has, are not in the table; the other side quarantined `more_quarantined` of them.
    """

    name: str
    job: Job
    table: pa.Table
    record: dict[str, Any] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    rows_per_second: float | None = None
    load_seconds: float | None = None
    more_rows: int = 0
    more_quarantined: int = 0

    @property
    def cost_per_1000(self) -> float | None:
        """Return the price of 1,000 rows, in the job's currency, or None if it has no prices."""
        total, rows = total_of(uses_of(self.job, self.record)), self.record.get("rows_out")
        return None if total is None or not rows else 1000 * total / rows


@dataclass(frozen=True)
class Drawing:
    """The rows to compare: their number, or None for as many as show the `difference`, and the seed of the draw."""

    rows: int | None = None
    difference: float = 0.02
    seed: int = 0

    @property
    def first(self) -> int:
        """Return the number of rows to begin with: enough if no more rows differ than the difference itself."""
        return self.rows or rows_needed(self.difference, self.difference)

    @property
    def most(self) -> int:
        """Return the number of rows that is always enough: even if all of them differ."""
        return self.rows or rows_needed(self.difference, 1.0)


class BothWays:
    """Computes drawn rows with two jobs, as the sides `a` and `b`. Of the `total` rows, `rows` are computed so far."""

    def __init__(self, drawn: DrawnRows, folder: Path, jobs: Sequence[tuple[str, Job]]) -> None:
        self._drawn, self._folder = drawn, folder
        self.total, self.rows, self.most = drawn.total, 0, len(drawn.rows)
        self.a, self.b = (Side(name, job, NO_ROWS) for name, job in jobs)

    def extend(self, rows: int) -> None:
        """Compute more drawn rows, until there are `rows` in all."""
        stop = min(rows, self.most)
        with _explained("ingest"):
            files = _read(self._drawn, self._folder, self.rows, stop)
        for side in (self.a, self.b):
            with _explained("infer"):
                _compute(side, self._drawn, files, str(self._folder))
        self.rows = stop


def _read(drawn: DrawnRows, folder: Path, first: int, stop: int) -> list[Path]:
    """Write one file per block of drawn rows, because the columns of blocks may differ."""
    files = []
    for number, block in enumerate(drawn.read(first, stop)):
        files.append(folder / f"{first}-{number}.arrow")
        with pa.OSFile(str(files[-1]), "wb") as sink, pa.ipc.new_file(sink, block.schema) as writer:
            writer.write_table(block)
    return files


@contextmanager
def both_ways(jobs: Sequence[tuple[str, Job]], partition: str, drawing: Drawing) -> Iterator[BothWays]:
    """Draw rows of the first job's partition, and yield what computes them. A second job reads the same rows."""
    with tempfile.TemporaryDirectory(prefix="overnight-compare-") as folder, user_output.left_alone():
        with _explained("ingest"):
            job = jobs[0][1]
            draw = draw_rows(run_in(folder, job, partition), job.source, drawing.most, drawing.seed)
        yield BothWays(draw, Path(folder), jobs)


@dataclass(frozen=True)
class ComputedAgain:
    """Drawn rows as a job computes them now: the side, and the source rows with `row_id`, `__state`, `__error_type`."""

    side: Side
    source_rows: pa.Table
    drawn: int
    total: int


def compute_again(job: Job, partition: str, manifest: Location, drawing: Drawing) -> ComputedAgain:
    """Draw rows of an earlier run's `manifest`, and compute them with the job."""
    with tempfile.TemporaryDirectory(prefix="overnight-verify-") as folder, user_output.left_alone():
        with _explained("ingest"):
            run = run_in(folder, job, partition)
            sample = draw_rows(run, job.source, drawing.most, drawing.seed, manifest)
            files = _read(sample, Path(folder), 0, len(sample.rows))
            rows = [_block(file).select(["row_id", "__state", "__error_type"]) for file in files]
        side = Side(job.name, job, NO_ROWS)
        with _explained("infer"):
            if files:
                _compute(side, sample, files, folder)
    return ComputedAgain(side, pa.concat_tables(rows, promote_options="permissive"), len(sample.rows), sample.total)


def published_sides(a: Result, b: Result, drawing: Drawing) -> tuple[Side, Side, int]:
    """Return drawn rows that both results have, and the number of all such rows. Both are read twice."""
    ids_a, ids_b = (hashes_of(result.batches(["row_id"]), []).ids for result in (a, b))
    common = np.intersect1d(ids_a, ids_b)
    total = len(common)
    if total > drawing.most:
        common = np.random.default_rng(drawing.seed).choice(common, drawing.most, replace=False)
    sides = _published_side(a, common), _published_side(b, common)
    for side, other, ids in ((sides[0], sides[1], ids_a), (sides[1], sides[0], ids_b)):
        side.more_rows = len(ids) - total
        quarantine = pa.table({"row_id": pa.array(other.quarantined, pa.string())})
        side.more_quarantined = int(np.isin(ids, hashes_of([quarantine], []).ids).sum())
    return *sides, total


def _published_side(result: Result, ids: np.ndarray) -> Side:
    tables, receipt = [NO_ROWS], result.receipt
    for table in result.batches():
        rows = table.filter(pa.array(np.isin(hashes_of([table], []).ids, ids)))
        if len(rows):
            tables.append(result.with_images(rows))
    rate = (receipt.get("performance") or {}).get("rows_per_second_streaming") or receipt.get("rows_per_second")
    name = f"{result.job.name} {result.name}"
    table = pa.concat_tables(tables, promote_options="permissive")
    return Side(name, result.job, table, receipt, _reasons(result.quarantine()), rate)


def _compute(side: Side, drawn: DrawnRows, files: Sequence[Path], folder: str) -> None:
    """Add the rows of these files of blocks to a side, with their seconds."""
    job = side.job
    run = run_in(folder, job, drawn.run.partition)
    started_at = time.perf_counter()
    stages = _loaded(job, run)
    loaded_at = time.perf_counter()
    blocks: Iterator[pa.Table] = map(_block, files)
    for stage in stages:
        blocks = stage.on(blocks, TOGETHER)
    tables, ends, counts = [side.table], [loaded_at], [0]
    for block in blocks:
        rows = block
        if not job.models:  # otherwise the models drop the heavy columns that are not published
            rows = drop_heavy(block, job.sink.keep_columns, not job.source.rows_are_files)
        result = outcome(rows, run, job.sink, drawn.schema)
        tables.append(result.table)
        side.quarantined |= _reasons(result.quarantine)
        ends.append(time.perf_counter())
        counts.append(len(block))
    side.table = pa.concat_tables(tables, promote_options="permissive")
    first = min(1, len(counts) - 2)  # the first block warms up libraries and devices, unless it is the only one
    if len(counts) > 1:
        side.rows_per_second = sum(counts[first + 1 :]) / (ends[-1] - ends[first])
    side.load_seconds = loaded_at - started_at
    side.record = _record(side, (side.record.get("seconds") or 0.0) + ends[-1] - loaded_at)
    del stages
    release_memory()


def _loaded(job: Job, run: Run) -> list[Loaded]:
    """Return the loaded steps and models, without steps that need all rows of the partition."""
    pipeline = compile_job(job)
    steps = tuple(step for step in pipeline.steps if not isinstance(step, PartitionStep))
    stages: list[Loaded] = [Steps(steps).load(run)] if steps else []
    links = [replace(link, model=link.model.for_preview()) for link in pipeline.links]
    return [*stages, *(link.load(run) for link in links)]


def _block(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


def _record(side: Side, seconds: float) -> dict[str, Any]:
    """Return what a receipt would have of these rows, as far as prices and columns need it."""
    has_device = any(model.num_gpus for model in side.job.models)
    performance = {"device_seconds": seconds if has_device else 0.0}
    columns = summary(describe(side.table), ())
    record = {"rows_out": len(side.table), "rows_quarantined": len(side.quarantined), "columns": columns}
    return record | {"seconds": seconds, "stages": {"infer": {"seconds": seconds}}, "performance": performance}


def _reasons(quarantine: pa.Table) -> dict[str, str]:
    reasons = {}
    for row in quarantine.select(["row_id", "error_type", "error_message"]).to_pylist():
        reasons[row["row_id"]] = f"{row['error_type']}: {row['error_message']}"
    return reasons


@contextmanager
def _explained(stage: str) -> Iterator[None]:
    try:
        yield
    except OvernightError:
        raise
    except Exception as error:
        raise explain(error, stage) from error
