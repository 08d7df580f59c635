"""The worker of one model, which it loads once and runs on every batch.

A worker lives in a process of its own, with a Ray actor as its shell (`worker_process.py`). It passes only rows that
are not settled, and the model's input columns, to the model. It isolates rows on which the model fails, and prefixes
the outputs if there are several models. It drops heavy inputs that nothing later reads.
"""

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import ContractError
from overnight.tasks.infer.accelerators import peak_memory
from overnight.tasks.infer.link import Link, without_unread
from overnight.tasks.infer.predictor import Predict, Predictor
from overnight.tasks.rows import apply, blocks, rebatch, result, user_function
from overnight.tasks.rows.declared_types import as_declared
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.passing_on import without_weights
from overnight.tasks.rows.tensors import Column
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor, user_output
from overnight.tasks.workers.device_errors import is_device_failure, is_out_of_memory
from overnight.tasks.workers.retry import with_retries
from overnight.tasks.workers.row_isolation import RestartIsolation, RowIsolation
from overnight.tasks.workers.watchdog import Watchdog

MOST_BYTES_AT_ONCE = 512 * 2**20  # of rows that a model gets, unless one row has more
BYTES_AT_ONCE = 2**20  # of results that a worker passes on together, unless one piece has more

Prepare = Callable[..., Iterator[pa.Table]]  # takes a block and its `isolation`, and yields blocks of its rows
PassOn = Callable[[Iterable[pa.Table]], Iterator[pa.Table]]


class Worker:
    """Loads the model of `link`, and runs it and the steps that follow it on each block that it is called with.

    Heavy inputs such as images are dropped after the steps. They stay if `link.read` names them, or if a prefix in
    `link.earlier` shows that a model made them. Several threads may call a worker.

    Args:
        pace: The model's seconds per row, as measured on a sample, or 0 if unknown. It lengthens the time limit of a
            call.
        is_trial: The worker tries the model on a sample. It does not report failed rows, because the stream runs these
            rows again.
        columns: The columns that the model adds, without its prefix, as a trial showed them; None if no trial did.
        is_slow: The worker passes on each result immediately, and does not collect several.
        pass_on: Takes the blocks of a call, and yields the blocks that the worker returns.
        tried: The worker of the trial in this process, whose loaded model this one uses; None to load the model.
        is_restarted: A worker died, and this one replaces it. It then runs the rows of one call at a time, so that
            another death shows which rows it ran.
    """

    def __init__(
        self,
        link: Link,
        run: Run,
        pace: float = 0.0,
        is_trial: bool = False,
        columns: pa.Schema | None = None,
        is_slow: bool = False,
        pass_on: PassOn = iter,
        tried: "Worker | None" = None,
        is_restarted: bool = False,
    ):
        predictor: Predictor = link.model
        self._predictor, self._run, self._link, self._prefix = predictor, run, link, link.prefix
        self._label = f"inference {predictor.name or predictor.kind}"
        self._source = f"infer {predictor.shown_name()}{' (trial)' if is_trial else ''}"
        self._is_trial = is_trial
        self.guard = Watchdog(run, "infer", self._label, pace)
        self._isolation = RestartIsolation(is_restarted)
        if is_restarted:
            supervisor.report(run, "infer", f"{self._label}: a worker died and was started again")
        self._clock = ConcurrentTimer()
        self._bytes_at_once = 0 if is_slow else BYTES_AT_ONCE
        self._pass_on = pass_on
        self._where = Expression(predictor.where) if predictor.where else None
        self._columns = columns or pa.schema([])
        self._rows_at_once: int | None = None
        self._device_memory = 0  # bytes on one accelerator, the most that is reported so far
        self.made: set[str] = set()  # names of the columns that the model added
        self.rows_seen = 0  # rows that the model got; `where` keeps the others from it
        self.errors: list[Exception] | None = [] if is_trial else None  # the errors of failed rows, in a trial
        self.loaded: Predict = tried.loaded if tried else self._load()

    def _load(self) -> Predict:
        with self.collected():
            predict = self._predictor.load_with(self._run.answers / (self._predictor.name or self._predictor.kind))
        if self._predictor.fallback:
            supervisor.report(self._run, "infer", self._predictor.fallback, is_warning=True)
        return predict

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        isolation = self._isolation.next_call()
        done = rebatch.rebatch_bytes(self._done(block, isolation), self._bytes_at_once)
        yield from self._pass_on(done)

    def _done(self, block: pa.Table, isolation: RowIsolation) -> Iterator[pa.Table]:
        pieces, at_once = self.pieces(block, isolation), self._predictor.rows_at_once()
        # A model does not wait for slow steps to fill its batch: what is prepared would be neither done nor staged.
        for piece in rebatch.rebatch_rows(pieces, at_once, rebatch.SECONDS_AT_ONCE):
            for batch in rebatch.cut(piece, MOST_BYTES_AT_ONCE):
                yield from self.behind(self.run(batch, isolation), isolation)

    def pieces(self, block: pa.Table, isolation: RowIsolation) -> Iterator[pa.Table]:
        """Yield the rows of `block` that go to the model. A subclass may preprocess them here.

        `isolation` decides whether the preprocessing runs rows together, or apart because one may have killed a worker.
        """
        rows = without_weights(block)
        if len(rows) or not len(block):
            yield rows

    def run(self, block: pa.Table, isolation: RowIsolation) -> pa.Table:
        """Run the model on `block`, and return it with the model's columns. Rows that fail are quarantined in it.

        `isolation` decides whether the model runs the rows together, or apart because one may have killed a worker.
        """
        with self._isolation.one_at_a_time, self._clock.call(), self.collected():
            done = self.guard.run(block, self._apply, isolation)
        if not self._is_trial:  # the rows of a trial come again, and it tries batches that are too large
            supervisor.report_quarantined(done, block, self._run)
            self._report_device_memory()
        return done

    def _report_device_memory(self) -> None:
        """Report the most bytes that the worker has taken on an accelerator, if it reserves one and they are more."""
        if self._predictor.accelerators() and (peak := peak_memory()) > self._device_memory:
            self._device_memory = peak
            supervisor.emit(self._run, supervisor.DeviceMemoryTaken(peak))

    def behind(self, block: pa.Table, isolation: RowIsolation) -> Iterator[pa.Table]:
        """Run the steps that follow the model on `block`, and yield the resulting blocks.

        A heavy column, such as an image, is dropped if nothing after this link reads it and no model made it.
        `isolation` decides whether the steps run the rows together, or apart because one may have killed a worker.
        """
        steps = self._link.steps
        with self._isolation.one_at_a_time:
            pieces = list(steps(block, run=self._run, isolation=isolation)) if steps else [block]
        for piece in pieces:
            yield without_unread(piece, self._link, self.made)

    def collected(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the text that the model prints and logs goes to the run's log."""
        return user_output.collected(self._run, self._source)

    def _apply(self, piece: pa.Table) -> pa.Table:
        return apply.apply(piece, "infer", with_retries(self._work, "infer"), self._clock, self.errors)

    def _work(self, live: pa.Table) -> result.Outcome:
        """Return the model's columns for `live`, null for rows that `where` keeps from the model."""
        if not self._where or (self._is_trial and not self._where.fits(live)):  # an earlier model failed
            return self._in_calls(live, self._predictor.rows_per_call())
        holds, failed = self._where.holds(live, f"{self._label}: where", "infer")
        chosen = np.flatnonzero(holds)
        if self._is_trial and not len(chosen):  # a trial calls the model, whatever these few rows hold
            return self._in_calls(live, self._predictor.rows_per_call())
        if not len(chosen):
            none = {self._prefix + column.name: pa.nulls(len(live), column.type) for column in self._columns}
            return result.Outcome(none, failed=failed)
        made = self._in_calls(live.take(chosen), self._predictor.rows_per_call())
        columns = {name: blocks.scatter(column, chosen, len(live)) for name, column in made.columns.items()}
        return result.Outcome(columns, failed=failed | {int(chosen[row]): error for row, error in made.failed.items()})

    def _in_calls(self, live: pa.Table, at_once: int) -> result.Outcome:
        """Return the model's columns for `live`, in calls that are small enough for the memory.

        If the memory is too small even for a call of one row, raise the error, which is then the row's own.
        """
        self.rows_seen += len(live)
        while True:
            size = min(self._rows_at_once or at_once, len(live))
            try:
                pieces = [live[start : start + size] for start in range(0, len(live), size)]
                return result.stacked([self.predict(piece) for piece in pieces], [len(piece) for piece in pieces])
            except Exception as error:
                if is_device_failure(error):
                    self.guard.end_process(error)
                if not is_out_of_memory(error) or size == 1:
                    raise
            self._rows_at_once = size // 2
            what = f"{self._label}: out of memory with {size} rows at a time, {self._rows_at_once} from then on"
            supervisor.report(self._run, "infer", what)
            release_memory()

    @property
    def is_short_of_memory(self) -> bool:
        """Return True if a call was too large for the memory."""
        return self._rows_at_once is not None

    def predict(self, live: pa.Table) -> result.Outcome:
        """Call the model once with `live`, rows without hidden columns, and return the columns that it adds.

        Raise the model's errors. Raise `ContractError` if a column that it reads is missing, or its result is not
        valid.
        """
        wanted = self._predictor.inputs()
        for name in wanted or ():
            if name not in live.column_names:
                raise ContractError(
                    f"{self._label}: expected column {name!r}, found {', '.join(live.column_names)}. "
                    "Name the column in the model's settings, or make it in preprocess."
                )
        seen = live if wanted is None else live.select(wanted)
        made = user_function.outcome_of(self.loaded, seen, "infer", self._label, self._predictor.given)
        columns = {self._prefix + name: self._typed(name, values) for name, values in made.columns.items()}
        self.made.update(columns)
        return result.Outcome(columns, failed=made.failed)

    def _typed(self, name: str, values: Column) -> Column:
        """Return a column of the model in the type that the trial showed, if this batch shows only a part of it."""
        place = self._columns.get_field_index(name)
        return values if place < 0 else as_declared(values, self._columns.field(place).type)


class PreparingWorker(Worker):
    """A worker that also preprocesses its rows, with `prepare`, so that no pixel crosses between processes.

    `prepare` takes the worker's input and its `isolation`, and yields blocks of preprocessed rows. `settings` are the
    arguments of `Worker`.
    """

    def __init__(self, prepare: Prepare, **settings: Any):
        super().__init__(**settings)
        self._prepare = prepare

    def pieces(self, block: pa.Table, isolation: RowIsolation) -> Iterator[pa.Table]:
        block = without_weights(block) if "__state" in block.column_names else block  # otherwise from `read_numbers`
        return self._prepare(block, isolation=isolation) if len(block) else iter(())


class ConcurrentTimer:
    """A timer for calls that share a device: while two calls run, half of each second counts for each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._seconds, self._seen = 0.0, time.perf_counter()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count one more running call while the context is open."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def __call__(self) -> float:
        """Return the timer's seconds. A call's own time is the difference of two readings during the call."""
        with self._lock:
            self._advance()
            return self._seconds

    def _count(self, more: int) -> None:
        with self._lock:
            self._advance()
            self._calls += more

    def _advance(self) -> None:
        now = time.perf_counter()
        self._seconds += (now - self._seen) / max(self._calls, 1)
        self._seen = now


def release_memory() -> None:
    """Release memory that a failed call still holds, so that smaller calls can follow."""
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.accelerator.is_available():
        torch.accelerator.empty_cache()
