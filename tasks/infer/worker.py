"""The worker of one model: it loads the model once, and runs it on every batch.

It passes only rows that are not settled, and the model's input columns, to the model. It prefixes the outputs if there
are several models, and drops heavy inputs that nothing later reads.
"""

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from overnight.tasks.engine.row_runner import Operation, RowRunner
from overnight.tasks.errors import ContractError
from overnight.tasks.infer.accelerators import peak_memory
from overnight.tasks.infer.batch_size import BatchSize
from overnight.tasks.infer.link import Link, without_unread
from overnight.tasks.infer.predictor import Predict, Predictor
from overnight.tasks.rows import blocks, rebatch, result, user_function
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.tensors import Column
from overnight.tasks.rows.user_values import as_declared
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor, user_output
from overnight.tasks.workers.device_errors import is_device_failure, is_out_of_memory
from overnight.tasks.workers.row_isolation import TOGETHER, RowIsolation

MOST_BYTES_AT_ONCE = 512 * 2**20  # of rows that a model gets, unless one row has more


class Worker:
    """Loads the model of `link`, and runs it and the steps that follow it on blocks. Several threads may use it.

    Heavy inputs such as images are dropped after the steps. They stay if `link.read` names them, or if a prefix in
    `link.earlier` shows that a model made them. If `is_trial`, the worker tries the model on a sample, and does not
    report failed rows, because the stream runs these rows again. `tried` is the worker of the trial in this process,
    whose loaded model this one uses; None to load the model.
    """

    def __init__(self, link: Link, run: Run, is_trial: bool = False, tried: "Worker | None" = None) -> None:
        self._predictor, self._run, self._link, self._prefix = link.model, run, link, link.prefix
        self._source = f"infer {link.model.shown_name()}{' (trial)' if is_trial else ''}"
        self._is_trial = is_trial
        self._clock = ConcurrentTimer()
        self.rows = RowRunner(run, "infer", link.label, link.pace, is_trial, self._clock)
        self._operations = [Operation(self._source, lambda _: self._work)]
        self._steps = link.steps.load(run) if link.steps else None
        self._where = Expression(link.model.where) if link.model.where else None
        self._columns = link.columns or pa.schema([])
        self.batch = _first_batch(link.model, is_trial)
        self._device_memory = 0  # bytes on one accelerator, the most that is reported so far
        self.made: set[str] = set()  # names of the columns that the model added
        self.rows_seen = 0  # rows that the model got; `where` keeps the others from it
        self.loaded: Predict = tried.loaded if tried else self._load()
        self._report_batch()

    def _load(self) -> Predict:
        with user_output.collected(self._run, self._source):
            predict = self._predictor.load_with(self._run.answers / (self._predictor.name or self._predictor.kind))
        if self._predictor.fallback:
            supervisor.report(self._run, "infer", self._predictor.fallback, is_warning=True)
        return predict

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        """Yield the blocks after the model and the steps that follow it, in batches of the model's size."""
        # A model does not wait for slow steps to fill its batch: what is prepared would be neither done nor staged.
        for piece in rebatch.rebatch_rows(blocks, self._rows_at_once, rebatch.SECONDS_AT_ONCE):
            for batch in rebatch.cut(piece, MOST_BYTES_AT_ONCE):
                yield from self.behind(self.run(batch, isolation or TOGETHER), isolation)

    def _rows_at_once(self) -> int:
        return self._predictor.rows_at_once(self.batch.rows)

    def run(self, block: pa.Table, isolation: RowIsolation) -> pa.Table:
        """Run the model on `block`, and return it with the model's columns. Rows that fail are quarantined in it."""
        with self._clock.call():
            done = self.rows.run(block, self._operations, isolation)
        if not self._is_trial:  # it tries batches that are too large
            self._report_device_memory()
        return done

    def behind(self, block: pa.Table, isolation: RowIsolation | None) -> Iterator[pa.Table]:
        """Yield `block` after the steps that follow the model, without the heavy columns that nothing later reads."""
        for piece in self._steps.on([block], isolation) if self._steps else [block]:
            yield without_unread(piece, self._link, self.made)

    def _report_device_memory(self) -> None:
        """Report the most bytes that the worker has taken on an accelerator, if it reserves one and they are more."""
        if self._predictor.accelerators() and (peak := peak_memory()) > self._device_memory:
            self._device_memory = peak
            supervisor.emit(self._run, supervisor.DeviceMemoryTaken(peak))

    def _work(self, live: pa.Table) -> result.Outcome:
        """Return the model's columns for `live`, null for rows that `where` keeps from the model."""
        if not self._where or (self._is_trial and not self._where.fits(live)):  # an earlier model failed
            return self._in_calls(live)
        holds, failed = self._where.holds(live, f"{self._link.label}: where", "infer")
        chosen = np.flatnonzero(holds)
        if self._is_trial and not len(chosen):  # a trial calls the model, whatever these few rows hold
            return self._in_calls(live)
        if not len(chosen):
            none = {self._prefix + column.name: pa.nulls(len(live), column.type) for column in self._columns}
            return result.Outcome(none, failed=failed)
        made = self._in_calls(live.take(chosen))
        columns = {name: blocks.scatter(column, chosen, len(live)) for name, column in made.columns.items()}
        return result.Outcome(columns, failed=failed | {int(chosen[row]): error for row, error in made.failed.items()})

    def _in_calls(self, live: pa.Table) -> result.Outcome:
        """Return the model's columns for `live`, in calls that are small enough for the memory.

        If the memory is too small even for a call of one row, raise the error, which is then the row's own.
        """
        self.rows_seen += len(live)
        while True:
            size = min(self.batch.rows, len(live))
            try:
                pieces = [live[start : start + size] for start in range(0, len(live), size)]
                return result.stacked([self._measured(piece) for piece in pieces], [len(piece) for piece in pieces])
            except Exception as error:
                if is_device_failure(error):
                    self.rows.guard.end_process(error)
                if not is_out_of_memory(error) or size == 1:
                    raise
            self.batch.reduce(size)
            what = f"{self._link.label}: out of memory with {size} rows at a time, {self.batch.rows} from then on"
            supervisor.report(self._run, "infer", what)
            self._report_batch()
            release_memory()

    def _measured(self, live: pa.Table) -> result.Outcome:
        started = self._clock()
        outcome = self.predict(live)
        if self.batch.measure(len(live), self._clock() - started):
            self._report_batch()
        return outcome

    def _report_batch(self) -> None:
        if not self._is_trial:
            found = supervisor.BatchSizeFound(self._predictor.shown_name(), self.batch.rows, self.batch.reason)
            supervisor.emit(self._run, found)

    def predict(self, live: pa.Table) -> result.Outcome:
        """Call the model once with `live`, rows without hidden columns, and return the columns that it adds.

        Raise the model's errors. Raise `ContractError` if a column that it reads is missing, or its result is not
        valid.
        """
        wanted = self._predictor.inputs()
        for name in wanted or ():
            if name not in live.column_names:
                raise ContractError(
                    f"{self._link.label}: expected column {name!r}, found {', '.join(live.column_names)}. "
                    "Name the column in the model's settings, or make it in preprocess."
                )
        seen = live if wanted is None else live.select(wanted)
        made = user_function.outcome_of(self.loaded, seen, "infer", self._link.label, self._predictor.given)
        columns = {self._prefix + name: self._typed(name, values) for name, values in made.columns.items()}
        self.made.update(columns)
        return result.Outcome(columns, failed=made.failed)

    def _typed(self, name: str, values: Column) -> Column:
        """Return a column of the model in the type that the trial showed, if this batch shows only a part of it."""
        place = self._columns.get_field_index(name)
        return values if place < 0 else as_declared(values, self._columns.field(place).type)


def _first_batch(model: Predictor, is_trial: bool) -> BatchSize:
    rows, is_searched = model.rows_per_call(), model.tunes_batch_size() and not is_trial
    reason = "by default" if model.batch_size == "auto" else "from the job file"
    return BatchSize(rows, is_searched, f"{reason}; too few rows for a search" if is_searched else reason)


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
