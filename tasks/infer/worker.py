"""The worker of one model: it loads the model once, and runs it on every batch.

It passes only rows that are not settled, and the model's input columns, to the model. It prefixes the outputs if there
are several models, and drops heavy inputs that nothing later reads.
"""

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from overnight.tasks.engine.row_runner import Operation, RowRunner
from overnight.tasks.errors import ContractError
from overnight.tasks.infer.batch_size import BatchSize
from overnight.tasks.infer.devices import peak_memory
from overnight.tasks.infer.engine_counters import EnginePredict
from overnight.tasks.infer.link import Link, without_unread
from overnight.tasks.infer.predictor import BESIDE, Predict
from overnight.tasks.infer.spending import answers_of, with_account
from overnight.tasks.memory.known_rows import KnownRows
from overnight.tasks.memory.made_rows import Made, with_made
from overnight.tasks.rows import blocks, rebatch, user_function
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.result import Outcome, stacked
from overnight.tasks.rows.tensors import Column
from overnight.tasks.rows.user_values import as_declared
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor, user_output
from overnight.tasks.workers.device_errors import is_device_failure, is_out_of_memory
from overnight.tasks.workers.row_isolation import TOGETHER, RowIsolation

MOST_BYTES_AT_ONCE = 512 * 2**20  # of rows that a model gets, unless one row has more
SECONDS_OF_COUNTERS = 1.0  # between two readings of an engine's counters


class Worker:
    """Loads the model of `link`, and runs it and the steps that follow it on blocks. Several threads may use it.

    If `is_trial`, the worker does not report failed rows, because the stream runs the rows of a trial again. `trial` is
    the worker of the trial in this process, whose loaded model this one uses.
    """

    def __init__(self, link: Link, run: Run, is_trial: bool = False, trial: "Worker | None" = None) -> None:
        self._predictor, self._run, self._link, self._prefix = link.model, run, link, link.prefix
        self._is_trial = is_trial
        self._source = f"infer {link.model.shown_name()}"
        if is_trial:
            self._source += " (trial)"
        self._clock = ConcurrentTimer()
        self.rows = RowRunner(run, "infer", link.label, link.pace, is_trial, self._clock)
        self._steps = link.steps.load(run) if link.steps else None
        self._where = Expression(link.model.where) if link.model.where else None
        self._columns = link.columns or pa.schema([])
        is_searched = link.model.tunes_batch_size() and not is_trial
        reason = "by default" if link.model.batch_size == "auto" else "from the job file"
        if is_searched:
            reason += "; too few rows for a search"
        self.batch = BatchSize(link.model.rows_per_call(), is_searched, reason)
        self._device_memory = 0  # bytes on one accelerator, the most that is reported so far
        self._engine_reported = 0.0
        self.outputs: set[str] = set()  # names of the columns that the model added
        self.model_rows = 0  # rows that the model got; `where` keeps the others from it
        self.memory = KnownRows(link.memory, link.prefix) if link.memory else None
        self._loaded: Predict | None = trial.loaded_so_far if trial else None
        self._loading = threading.Lock()
        if self.memory is None or self.memory.is_empty:
            _ = self.loaded
        self._report_batch()

    @property
    def loaded(self) -> Predict:
        """Return the loaded model. Load it now if all rows so far were known."""
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    @property
    def loaded_so_far(self) -> Predict | None:
        """Return the loaded model, or None if all rows so far were known."""
        return self._loaded

    def _load(self) -> Predict:
        with user_output.collected(self._run, self._source):
            model = with_account(self._predictor, self._run)
            predict = model.load_with(answers_of(self._run, model))
        if self._predictor.fallback:
            supervisor.report(self._run, "infer", self._predictor.fallback, is_warning=True)
        return predict

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        """Yield the blocks after the model and the steps that follow it, in batches of the model's size."""

        def rows_at_once() -> int:
            return self._link.rows_at_once(self.batch.rows)

        # A model does not wait for slow steps to fill its batch: prepared rows would be neither done nor staged.
        for piece in rebatch.rebatch_rows(blocks, rows_at_once, rebatch.SECONDS_AT_ONCE):
            for batch in rebatch.cut(piece, MOST_BYTES_AT_ONCE):
                yield from self.behind(self.run(batch, isolation or TOGETHER), isolation)

    def run(self, block: pa.Table, isolation: RowIsolation) -> pa.Table:
        """Run the model on `block`, and return it with the model's columns. Rows that fail are quarantined in it."""
        calls: list[Made] = []
        if self._loaded is None and not self.knows(block):
            _ = self.loaded  # outside the time limit of rows
        with self._clock.call():
            block = self.rows.run(block, [Operation(self._source, lambda _: partial(self._work, calls))], isolation)
        if not self._is_trial:  # it tries batches that are too large
            if self.memory and any(call.known or call.members for call in calls):
                block = with_made(block, self.memory.memory, calls)
            self._report_device_memory()
            self._report_engine()
        return block

    def behind(self, block: pa.Table, isolation: RowIsolation | None) -> Iterator[pa.Table]:
        """Yield `block` after the steps that follow the model, without the heavy columns that nothing later reads."""
        for piece in self._steps.on([block], isolation) if self._steps else [block]:
            yield without_unread(piece, self._link, self.outputs)

    def _report_device_memory(self) -> None:
        if not self._predictor.accelerators():
            return
        peak = peak_memory()
        if peak > self._device_memory:
            self._device_memory = peak
            supervisor.emit(self._run, supervisor.DeviceMemoryTaken(peak))

    def _report_engine(self) -> None:
        """Report the engine's counters once a second, and whenever no call runs, so that the last report has all."""
        is_due = time.monotonic() - self._engine_reported >= SECONDS_OF_COUNTERS or not self._clock.is_running
        engine = self._loaded
        if isinstance(engine, EnginePredict) and is_due:
            self._engine_reported = time.monotonic()
            if counters := engine.counters():
                name = BESIDE.join(dict.fromkeys(engine.models)) or self._predictor.shown_name()
                event = supervisor.EngineCounted(engine.engine, name, counters)
                supervisor.emit(self._run, event)

    def knows(self, block: pa.Table) -> bool:
        """Return True if the results of all rows that the model would get are remembered."""
        if self.memory is None or self.memory.is_empty:
            return False
        live, _ = blocks.live_rows(block)
        rows, _ = self._selected(live)
        return self.memory.has_all(self._given(live.take(rows)))

    def _selected(self, live: pa.Table) -> tuple[np.ndarray, Mapping[int, Exception]]:
        """Return the numbers of the rows that the model gets, and those on which `where` fails."""
        every = np.arange(len(live))
        if not self._where or (self._is_trial and not self._where.fits(live)):  # an earlier model failed
            return every, {}
        holds, errors = self._where.holds(live, f"{self._link.label}: where", "infer")
        rows = np.flatnonzero(holds)
        if self._is_trial and not len(rows):  # a trial calls the model, whatever these few rows hold
            return every, {}
        return rows, errors

    def _work(self, calls: list[Made], live: pa.Table) -> Outcome:
        """Return the model's columns for `live`, null for rows that `where` keeps from the model."""
        rows, errors_of_where = self._selected(live)
        if len(rows) == len(live):
            return self._outcome(live, calls)
        columns: dict[str, Column] = {}
        if not len(rows):
            for column in self._columns:
                columns[self._prefix + column.name] = pa.nulls(len(live), column.type)
            return Outcome(columns, failed=errors_of_where)
        errors = dict(errors_of_where)
        outcome = self._outcome(live.take(rows), calls)
        for name, values in outcome.columns.items():
            columns[name] = blocks.scatter(values, rows, len(live))
        for row, error in outcome.failed.items():
            errors[int(rows[row])] = error
        return Outcome(columns, failed=errors)

    def _outcome(self, live: pa.Table, calls: list[Made]) -> Outcome:
        """Return the model's columns for `live`: remembered ones, and those of calls, which are added to `calls`."""
        if self.memory is None or (self._is_trial and self._loaded is not None):
            return self._in_calls(live)
        outcome, call = self.memory.completed(self._given(live), lambda rows: self._in_calls(live.take(rows)))
        if call:
            calls.append(call)
        self.outputs.update(outcome.columns)
        return outcome

    def _given(self, live: pa.Table) -> pa.Table:
        """Return the columns that the model reads. A call reports a missing column."""
        inputs = self._predictor.inputs()
        return live if inputs is None else live.select(blocks.existing(live, inputs))

    def _in_calls(self, live: pa.Table) -> Outcome:
        """Return the model's columns for `live`, in calls that fit into the memory. The error of one row is its own."""
        self.model_rows += len(live)
        while True:
            size = min(self.batch.rows, len(live))
            pieces = [live[start : start + size] for start in range(0, len(live), size)]
            try:
                return stacked(list(map(self._measured, pieces)), list(map(len, pieces)), "infer", live)
            except Exception as error:
                if is_device_failure(error):
                    self.rows.guard.end_process(error)
                if not is_out_of_memory(error) or size == 1:
                    raise
            self.batch.reduce(size)
            incident = f"{self._link.label}: out of memory with {size} rows at a time, {self.batch.rows} from then on"
            supervisor.report(self._run, "infer", incident)
            self._report_batch()
            release_memory()

    def _measured(self, live: pa.Table) -> Outcome:
        start = self._clock()
        outcome = self.predict(live)
        if self.batch.measure(len(live), self._clock() - start):
            self._report_batch()
        return outcome

    def _report_batch(self) -> None:
        if not self._is_trial:
            event = supervisor.BatchSizeFound(self._predictor.shown_name(), self.batch.rows, self.batch.reason)
            supervisor.emit(self._run, event)

    def predict(self, live: pa.Table) -> Outcome:
        """Call the model once with `live`, rows without hidden columns, and return the columns that it adds."""
        inputs = self._predictor.inputs()
        for name in inputs or ():
            if name not in live.column_names:
                raise ContractError(
                    f"{self._link.label}: expected column {name!r}, found {', '.join(live.column_names)}. "
                    "Name the column in the model's settings, or make it in preprocess."
                )
        if inputs is not None:
            live = live.select(inputs)
        outcome = user_function.outcome_of(self.loaded, live, "infer", self._link.label, self._predictor.given)
        columns: dict[str, Column] = {}
        for name, values in outcome.columns.items():
            columns[self._prefix + name] = values
            if name in self._columns.names:  # the trial showed its type; this batch may show only a part
                columns[self._prefix + name] = as_declared(values, self._columns.field(name).type)
        self.outputs.update(columns)
        return Outcome(columns, failed=outcome.failed)


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

    @property
    def is_running(self) -> bool:
        return self._calls > 0

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
    torch = sys.modules.get("torch")
    if torch and torch.accelerator.is_available():
        torch.accelerator.empty_cache()
