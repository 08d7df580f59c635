"""The worker of one model: a Ray actor that loads it once and runs it on every batch.

It hands the model only live rows and only the columns it reads, isolates rows on which it fails, prefixes its outputs
when there are several models, and drops heavy inputs behind the last one.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pyarrow as pa

from tasks import arrays, rows, supervisor
from tasks.errors import ContractError
from tasks.faults import is_device_failure, is_out_of_memory
from tasks.guard import Guard
from tasks.infer.predictor import Predictor
from tasks.patiently import patiently
from tasks.run_directory import Run

TRIAL_SECONDS, LARGEST_BATCH = 3.0, 512
WORTH_IT = 0.05  # by how much a larger batch must be quicker
CAREFUL_CALLS = 8  # of a worker started again: more than Ray Data has under way with one, and sends to it again


Prepare = Callable[[pa.Table], Iterator[pa.Table]]


@dataclass(frozen=True)
class Trial:
    """What a model took on a sample: seconds a row once warm, the bytes of memory of its process alone, and rows.

    batch_size: rows at once with the best throughput; None where that was not looked for.
    """

    seconds_a_row: float
    memory: int
    batch_size: int | None


class Worker:
    """Columns in: those that `predictor.inputs()` names. Columns out: what it returns, prefixed with `prefix`.

    drop_heavy: inputs such as images are dropped behind this worker, unless a prefix in `earlier` shows that a model
    made them, or `keep` names them.
    """

    def __init__(
        self,
        predictor: Predictor,
        run: Run,
        prefix: str,
        drop_heavy: bool,
        earlier: list[str],
        keep: list[str],
        pace: float = 0.0,
    ):
        self._predictor, self._run, self._prefix = predictor, run, prefix
        self._drop_heavy, self._earlier, self._keep = drop_heavy, tuple(earlier), set(keep)
        self._label = f"inference {predictor.name or predictor.kind}"  # type: ignore[attr-defined]
        self.guard = Guard(run, "infer", self._label, pace)
        self._careful_calls = CAREFUL_CALLS if _was_restarted() else 0
        if self._careful_calls:
            supervisor.report(run, "infer", f"{self._label}: a worker died and was started again")
        self._rows_at_once: int | None = None
        self._made: set[str] = set()
        self._predict = predictor.load()

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        careful = self._careful_calls > 0
        self._careful_calls -= careful
        for piece in rows.of_length(self.pieces(block), self._predictor.rows_per_call()):
            yield self.run(piece, careful)

    def pieces(self, block: pa.Table) -> Iterator[pa.Table]:
        """The rows to work on."""
        yield block

    def run(self, block: pa.Table, careful: bool) -> pa.Table:
        """`block` with the model's columns. careful: its rows may have killed a worker before."""
        heavy = heavy_columns(block, self._earlier) - self._keep if self._drop_heavy else set()
        done = self.guard.run(block, lambda piece: rows.apply(piece, "infer", patiently(self._work, "infer")), careful)
        supervisor.report_quarantined(done, block, self._run)
        return done.drop_columns(sorted((heavy - self._made).intersection(done.column_names)))

    def _work(self, live: pa.Table) -> rows.Outcome:
        """The model's columns for `live`, in calls as small as its memory asks for; only a row alone is to blame."""
        while True:
            size = min(self._rows_at_once or len(live), len(live))
            try:
                return rows.stacked([self.predict(live[start : start + size]) for start in range(0, len(live), size)])
            except Exception as error:
                if is_device_failure(error):
                    self.guard.end_process(error)
                if not is_out_of_memory(error) or size == 1:
                    raise
            self._rows_at_once = size // 2
            what = f"{self._label}: out of memory with {size} rows at once, {self._rows_at_once} from then on"
            supervisor.report(self._run, "infer", what)
            _release_memory()

    @property
    def is_short_of_memory(self) -> bool:
        """Whether a call was too large for the device."""
        return self._rows_at_once is not None

    def predict(self, live: pa.Table) -> dict[str, arrays.Column]:
        """The model's columns for `live`, in one call. Raises what the model raises, and `ContractError`."""
        wanted = self._predictor.inputs()
        for name in wanted or ():
            if name not in live.column_names:
                raise ContractError(
                    f"{self._label}: expected column {name!r}, found {', '.join(live.column_names)}. "
                    "Name the column in the model's settings, or make it in preprocess."
                )
        returned = rows.call(self._predict, live if wanted is None else live.select(wanted), "infer", self._label)
        columns = {self._prefix + name: values for name, values in returned.items()}
        self._made.update(columns)
        return columns


class PreparingWorker(Worker):
    """Also does the preprocessing of its rows: no pixel crosses from one process to another."""

    def __init__(self, prepare: Prepare, **settings: Any):
        super().__init__(**settings)
        self._prepare = prepare

    def pieces(self, block: pa.Table) -> Iterator[pa.Table]:
        return self._prepare(block)


def _was_restarted() -> bool:
    """Whether this process is an actor that Ray started again."""
    import ray

    context = ray.get_runtime_context() if ray.is_initialized() else None
    return bool(context and context.get_actor_id() and context.was_current_actor_reconstructed)


def _release_memory() -> None:
    """Gives back what a failed call still holds, for the smaller ones that follow."""
    gc.collect()
    if torch := sys.modules.get("torch"):
        for device in (torch.cuda, torch.xpu, torch.mps):
            if device.is_available():
                device.empty_cache()


def heavy_columns(block: pa.Table, earlier: tuple[str, ...] = ()) -> set[str]:
    """Columns too heavy to publish by default: bytes, and arrays of two or more dimensions that no model made."""
    heavy = set()
    for field in rows.visible(block).schema:
        if earlier and field.name.startswith(earlier):
            continue
        is_bytes = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
        if is_bytes or (field.type == arrays.TENSOR and _rank(block[field.name]) > 1):
            heavy.add(field.name)
    return heavy


def drop_heavy(block: pa.Table, keep: list[str]) -> pa.Table:
    """The block without its heavy columns, for jobs without a model."""
    return block.drop_columns(sorted(heavy_columns(block) - set(keep)))


def _rank(column: pa.ChunkedArray) -> int:
    """Dimensions of the first array; a column of nulls only counts as heavy, for nothing is lost with it."""
    for chunk in column.chunks:
        for cell in chunk.drop_null()[:1]:
            return len(cell["shape"])
    return 2


def try_model(predictor: Predictor, run: Run, sample: pa.Table) -> Trial | None:
    """Loads the model and runs `sample` through it, as the stage's worker would; then finds its best batch size.

    Rows that fail by themselves are skipped: None if all did. Raises `JobError` for a model that cannot be loaded and
    `ContractError` for one that breaks its contract. A row that ends the process is found when Ray runs this again.
    """
    worker = Worker(predictor, run, "", False, [], [])
    if not len(sample):
        return None
    with worker.guard.at(sample) as careful:
        for _ in range(2):  # the first one warms up
            started = time.perf_counter()
            done = worker.run(sample, careful)
            seconds = time.perf_counter() - started
        good = rows.visible(sample.filter(pa.array(done["__state"].to_numpy() == rows.LIVE)))
        if not len(good):
            return None
        size, seconds = None, seconds / len(good)
        # Not where a process died at this before: it may have been of a batch too large.
        if predictor.finds_batch_size() and not careful and not worker.is_short_of_memory:
            size, seconds = _best_batch(worker, good, seconds)
    return Trial(seconds, psutil.Process().memory_full_info().uss, size)


def _best_batch(worker: Worker, good: pa.Table, seconds: float) -> tuple[int, float]:
    """The batch size with the fewest seconds a row, and these. Larger ones are tried while that pays and fits."""
    best, until = len(good), time.perf_counter() + TRIAL_SECONDS
    size = best
    while 2 * size <= LARGEST_BATCH and time.perf_counter() + 4 * size * seconds < until:
        size *= 2
        batch = pa.concat_tables([good] * -(-size // len(good)))[:size]
        try:
            _seconds_a_row(worker, batch)  # warms up: kernels are chosen by shape
            found = _seconds_a_row(worker, batch)
        except Exception:  # out of memory, mostly; whatever it is, the sizes up to here do without
            _release_memory()
            break
        if found > seconds * (1 - WORTH_IT):
            break
        best, seconds = size, found
    return best, seconds


def _seconds_a_row(worker: Worker, batch: pa.Table) -> float:
    """Of one call, within the time that the guard gives one."""

    def work(piece: pa.Table) -> pa.Table:
        worker.predict(piece)
        return piece

    started = time.perf_counter()
    worker.guard.run(batch, work, False)
    return (time.perf_counter() - started) / len(batch)
