"""The trial of a model before the stream: is it loaded, what does a row take, and which batch size is the best?"""

import math
import time
from dataclasses import dataclass, replace

import psutil
import pyarrow as pa

from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.infer.worker import Worker, release_memory
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.forked_process import Begun, Forked
from overnight.tasks.workers.row_isolation import TOGETHER

SHORTEST_TRIAL, LONGEST_TRIAL = 0.3, 3.0  # seconds in which larger batches are tried: a hundredth of what is to do
LARGEST_BATCH = 512
CALLS = 3  # of each batch size, of which the quickest counts: kernels are chosen by shape in the first
MEMORY_BESIDE = 120 * 2**20  # bytes that the process of Ray's takes which has a forked one do its work
WORTH_IT = 0.03  # by how much a larger batch must be quicker
SIZES_BEYOND = 2  # which are tried although the one before was not worth it: what caches and kernels like is not smooth


@dataclass(frozen=True)
class Trial:
    """What a model took on a sample: seconds a row that it saw, once warm, and bytes of memory of its process alone.

    batch_size: rows at once with the best throughput; None where that was not looked for. columns: what it added.
    """

    seconds_a_row: float
    memory: int
    batch_size: int | None
    columns: pa.Schema


@dataclass(frozen=True)
class Failed:
    """A trial in which every row failed; `block` holds these rows, settled."""

    block: pa.Table

    def __str__(self) -> str:
        first = self.block.slice(0, 1).to_pylist()[0]
        count = f"all {len(self.block)} rows" if len(self.block) > 1 else "the one row"
        error = f"{first['__error_type']}: {first['__error_message']}".splitlines()[0]
        return f"{count} of the trial failed, the first, {first['row_id']}, with {error}"


class ModelTrial:
    """Loads a model and then tries it, as a Ray actor or in a forked process. It may be started again at any time."""

    def __init__(self, predictor: Predictor, run: Run) -> None:
        self._predictor, self._run = predictor, run
        self._worker: Worker | None = None
        self._failure: Exception | None = None

    def load(self) -> Worker:
        """Raises `JobError` for a model that cannot be loaded."""
        if self._failure:
            raise self._failure
        self._worker = self._worker or Worker(self._predictor, self._run, "", False, [], [], is_trial=True)
        return self._worker

    def loaded(self) -> None:
        """`load` for the call of `on` that follows, which raises what fails here: nothing waits for this one.

        Ray prints an error that nothing waits for, with its traceback.
        """
        try:
            self.load()
        except Exception as error:
            self._failure = error

    def on(self, sample: pa.Table, rows_to_do: float = math.inf) -> Trial | Failed | None:
        """Runs `sample` through the model, as the stage's worker would; then finds its best batch size.

        rows_to_do: of the run, as the model will see them; the fewer, the less time is taken to find that size.

        Rows that fail by themselves are skipped, unless all do; None if there is no row. Raises as `load`, and
        `ContractError` for a model that breaks its contract. A row that ends the process is found when Ray calls this
        again.
        """
        worker = self.load()
        if not len(sample):
            return None
        with worker.guard.at(sample) as isolation:
            for _ in range(2 if self._predictor.needs_warm_up() else 1):
                started = time.perf_counter()
                done = worker.run(sample, isolation)
                seconds = time.perf_counter() - started
            good, _ = blocks.live_rows(sample.filter(pa.array(done["__state"].to_numpy() == blocks.LIVE)))
            if not len(good):
                return Failed(blocks.drop_live_columns(done))
            size, seconds = None, seconds / len(good)
            # Not where a process died at this before: it may have been of a batch too large.
            if self._predictor.tunes_batch_size() and not isolation.is_on and not worker.is_short_of_memory:
                size, seconds = _best_batch(worker, good, seconds, rows_to_do)
        columns = pa.schema([field for field in blocks.live_rows(done)[0].schema if field.name in worker.made])
        return Trial(seconds, _own_memory(), size, columns)


def loaded(predictor: Predictor, run: Run) -> ModelTrial:
    """For a forked process: a model that is loaded there. Raises as `ModelTrial.load`."""
    trying = ModelTrial(predictor, run)
    trying.load()
    return trying


def on_forked(begun: Begun, sample: pa.Table, rows_to_do: float) -> Trial | Failed | None:
    """`ModelTrial.on` in a forked process, in which its model was begun to be `loaded`. Raises `ProcessDied`, too."""
    [trial] = Forked(begun, supervisor.ask).call("on", sample, rows_to_do)
    found: Trial | Failed | None = trial
    return replace(found, memory=found.memory + MEMORY_BESIDE) if isinstance(found, Trial) else found


def _own_memory() -> int:
    """Bytes that are this process's alone."""
    return int(psutil.Process().memory_full_info().uss)


def _best_batch(worker: Worker, good: pa.Table, seconds: float, rows_to_do: float) -> tuple[int, float]:
    """The batch size with the fewest seconds a row, and these. Larger ones are tried while that may pay and fits."""
    best = size = len(good)
    until = time.perf_counter() + min(max(rows_to_do * seconds / 100, SHORTEST_TRIAL), LONGEST_TRIAL)
    while 2 * size <= min(LARGEST_BATCH, best * 2**SIZES_BEYOND):
        size *= 2
        if time.perf_counter() + CALLS * size * seconds > until:
            break
        batch = pa.concat_tables([good] * -(-size // len(good)))[:size]
        try:
            found = min(_seconds_a_row(worker, batch) for _ in range(CALLS))
        except Exception:  # out of memory, mostly; whatever it is, the sizes up to here do without
            release_memory()
            break
        if found < seconds * (1 - WORTH_IT):
            best, seconds = size, found
    return best, seconds


def _seconds_a_row(worker: Worker, batch: pa.Table) -> float:
    """Of one call, within the time that the guard gives one."""

    def work(piece: pa.Table) -> pa.Table:
        worker.predict(piece)
        return piece

    started = time.perf_counter()
    worker.guard.run(batch, work, TOGETHER)  # what it prints is not collected: it did so for these rows before
    return (time.perf_counter() - started) / len(batch)
