"""One named Ray actor per run, to which all of its workers report quarantined rows, running rows, incidents and lines.

The flow's own process owns it, so it outlives every attempt. Without an actor, reports are dropped. A process of its
own reports through its worker. The import of this file imports neither Ray nor PyArrow: some processes need only one.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import TooManyQuarantined
from overnight.tasks.storage.failed_requests import take_problems
from overnight.tasks.workers import forked_process
from overnight.tasks.workers.poison_rows import BlockLeft, DeathExplained, PoisonRowTracker, RowsBegun, WorkerEvent
from overnight.tasks.workers.run_log import RunLog, text
from overnight.tasks.workers.spending import Paid, Reply, Settled, Spending

if TYPE_CHECKING:
    import pyarrow as pa

    from overnight.tasks.state.run import Run

DETAILS_AT_ONCE = 100  # the most rows of one report that have their reasons
ANSWER_SECONDS = 3.0  # of a supervisor, while a user waits for the end of the run
KEPT = 1000  # rows whose reasons are kept, for a run that fails before it has staged them

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")
_supervisors: dict[str, Any] = {}  # by name: Ray's handles in this process


@dataclass(frozen=True)
class QuarantineAllowed:
    """From now on, at most `limit` rows may be quarantined, with the `already` rows that earlier attempts staged."""

    limit: int
    already: int
    of: str  # a phrase for messages that names the rows of the limit


@dataclass(frozen=True)
class UnitsRead:
    """A block of units was read, in which `ends` rows are END rows: they have the length of a unit, unknown before."""

    attempt: str
    unit: int  # the first of the block, so that a block that is read again counts once
    ends: int


@dataclass(frozen=True)
class RowsPassed:
    """Rows of one input have passed a stage inside a worker that does the work of several."""

    attempt: str
    stage: str
    first: tuple[int, int]  # identifies the input, so that one that is reported again counts once
    rows: int


@dataclass(frozen=True)
class Incident:
    """A sentence about something that happened in a stage; if `is_warning`, it is also a warning of the receipt."""

    stage: str
    what: str
    is_warning: bool = False


@dataclass(frozen=True)
class DeviceMemoryTaken:
    """A worker has taken `size` bytes on one accelerator."""

    size: int


@dataclass(frozen=True)
class BatchSizeFound:
    """A worker of `model` now calls it with `rows` rows at a time, for this reason."""

    model: str
    rows: int
    reason: str


@dataclass(frozen=True)
class EngineCounted:
    """An engine of `model` has counted this since its start: tokens, cache hits, preemptions."""

    engine: str
    model: str
    counters: Mapping[str, float]


@dataclass(frozen=True)
class LinesWritten:
    """User code has written these lines."""

    lines: list[str]


@dataclass(frozen=True)
class StreamRuns:
    """The stream of the run's attempt now runs, or has ended."""

    is_running: bool


LastWords = LinesWritten | BlockLeft | RowsBegun | DeathExplained  # the process may end next, so `emit` waits
Event = (
    QuarantineAllowed
    | UnitsRead
    | RowsPassed
    | Incident
    | DeviceMemoryTaken
    | BatchSizeFound
    | EngineCounted
    | StreamRuns
    | LastWords
    | WorkerEvent
)


@dataclass(frozen=True)
class Snapshot:
    """What is recorded of a run so far; `ends` and `passed` are counts of one attempt."""

    incidents: list[dict[str, Any]] = field(
        default_factory=list
    )  # with `stage`, `what`, `times`, and `at` of the first
    warnings: tuple[str, ...] = ()  # the incidents that are warnings, each once
    device_memory: int | None = None  # the most bytes that a worker has taken on one accelerator
    batch_sizes: dict[str, dict[str, Any]] = field(default_factory=dict)  # by model: `rows` and `reason`
    engines: dict[str, dict[str, float]] = field(default_factory=dict)  # by model: the sums of its engines' counters
    ends: int = 0  # END rows that were read
    passed: dict[str, int] = field(default_factory=dict)  # by stage: rows that passed it inside a worker
    last_incident: Incident | None = None


class Supervisor(PoisonRowTracker):
    """The state of a run's supervisor: what its events have recorded. Its other public methods are questions."""

    def __init__(self) -> None:
        super().__init__()
        self._allowed: QuarantineAllowed | None = None
        self._quarantined: set[tuple[int, int]] = set()
        self._details: dict[tuple[int, int], dict[str, str]] = {}
        self._incidents: Counter[Incident] = Counter()
        self._last_incident: Incident | None = None
        self._first_times: dict[Incident, str] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._rows_passed: dict[tuple[str, str, tuple[int, int]], int] = {}
        self._device_memory: int | None = None
        self._batch_sizes: dict[str, BatchSizeFound] = {}  # by model, of the worker that spoke last
        self._engines: dict[str, EngineCounted] = {}  # by engine, what it reported last
        self._log = RunLog()
        self._is_streaming, self._must_stop = False, False
        self._spending: Spending | None = None

    def on(self, event: Event) -> None:
        """Record an event. A block or an input counts once, however often it is reported."""
        match event:
            case QuarantineAllowed():
                self._allowed, self._quarantined, self._details = event, set(), {}
            case UnitsRead(attempt, unit, ends):
                self._ends[attempt, unit] = ends
            case RowsPassed(attempt, stage, first, rows):
                key = (attempt, stage, first)
                self._rows_passed[key] = max(rows, self._rows_passed.get(key, 0))
            case Incident():
                self._incidents[event] += 1
                self._last_incident = event
                self._first_times.setdefault(event, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
            case DeviceMemoryTaken(size):
                self._device_memory = max(size, self._device_memory or 0)
            case BatchSizeFound(model):
                self._batch_sizes[model] = event
            case EngineCounted(engine):
                self._engines[engine] = event
            case LinesWritten(lines):
                self._log.add(lines)
            case StreamRuns(is_running):
                self._is_streaming = is_running
            case _:
                super().on(event)

    def quarantined(self, units: list[int], numbers: list[int], details: list[dict[str, str]]) -> str | None:
        """Record quarantined rows by their units and row numbers. Return why the run must stop; None if it may go on.

        `details` has the columns of the quarantine for the first of these rows. A row that Ray runs twice counts once.
        """
        if self._allowed is None:
            return None
        rows = list(zip(units, numbers, strict=True))
        self._quarantined.update(rows)
        for row, detail in zip(rows, details, strict=False):
            if len(self._details) < KEPT:
                self._details.setdefault(row, detail)
        count = len(self._quarantined) + self._allowed.already
        if count <= self._allowed.limit:
            return None
        first = next(iter(self._details.values()))
        return (
            f"at least {count} rows are quarantined; checks.max_quarantined allows {self._allowed.limit} "
            f"{self._allowed.of}. Correct the cause, or allow more. "
            f"The first: {first['row_id']} in {first['stage']}: {first['error_type']}: {first['error_message']}"
        )

    def stop_stream(self) -> bool:
        """Note that the stream must end. Return False if none runs now."""
        self._must_stop = True
        return self._is_streaming

    def must_stop(self) -> bool:
        """Return True if the run's stream must end."""
        return self._must_stop

    def begin_spending(self, spending: Spending) -> None:
        """Count the requests of the next try of a run, from what the earlier ones paid."""
        if self._spending:
            for model, paid in self._spending.paid.items():
                if not spending.paid[model].answers:  # vLLM has no log of answers
                    spending.paid[model] = paid
        self._spending = spending

    def exchange(self, worker: str, model: str, settled: list[Settled], wanted: list[Paid]) -> Reply | None:
        """Note requests of a worker that have ended, and return how many of `wanted` it may send; see `Spending`.

        Return None if this actor has lost its counts: a new try of the run reads them again.
        """
        return self._spending.exchange(worker, model, settled, wanted) if self._spending else None

    def spent(self) -> Paid | None:
        """Return what all answers of the generation have cost; None in a run that sends no requests."""
        return self._spending.total() if self._spending else None

    def is_asking(self) -> bool:
        """Return True while requests are under way."""
        return self._spending is not None and self._spending.is_under_way

    def quarantined_since(self, number: int, stop: int) -> tuple[int, list[dict[str, str]]]:
        """Return how many rows this attempt quarantined, and of the first `KEPT` those from `number` to `stop`."""
        return len(self._quarantined), list(self._details.values())[number:stop]

    def lines_since(self, number: int) -> tuple[int, list[str]]:
        """Return the number of all lines that user code wrote, and the kept lines after the first `number`."""
        return self._log.since(number)

    def snapshot(self, attempt: str) -> Snapshot:
        """Return what is recorded of the run so far, with the counts of `attempt`."""
        rows_by_stage: Counter[str] = Counter()
        for (of, stage, _), rows in self._rows_passed.items():
            if of == attempt:
                rows_by_stage[stage] += rows
        incidents = []
        for event, times in sorted(self._incidents.items(), key=lambda item: (item[0].stage, item[0].what)):
            times_of_event = {"times": times, "at": self._first_times[event]}
            incidents.append({"stage": event.stage, "what": event.what} | times_of_event)
        engines: dict[str, Counter[str]] = {}
        for event_of_engine in self._engines.values():
            engines.setdefault(event_of_engine.model, Counter()).update(event_of_engine.counters)
        return Snapshot(
            incidents,
            tuple(dict.fromkeys(event.what for event in self._incidents if event.is_warning)),
            self._device_memory,
            {model: {"rows": batch.rows, "reason": batch.reason} for model, batch in self._batch_sizes.items()},
            {model: dict(counters) for model, counters in engines.items()},
            sum(ends for (of, _), ends in self._ends.items() if of == attempt),
            dict(rows_by_stage),
            self._last_incident,
        )


def actor_name(run: Run) -> str:
    return f"overnight-{run.job}-{run.generation}-{run.token}"


@contextlib.contextmanager
def supervised(run: Run) -> Iterator[None]:
    """Run the run's supervisor, a named Ray actor, while the body runs, on this node if Ray can place it here.

    If it is lost, it starts again with empty state. The state saves time, and no row depends on it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor_class = ray.remote(Supervisor).options(
        name=actor_name(run),
        num_cpus=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True),
        max_restarts=-1,
        max_task_retries=-1,
    )
    actor = actor_class.remote()
    try:
        yield
    finally:
        ray.kill(actor)
        _supervisors.pop(actor_name(run), None)


def ask(run: Run, question: Callable[[Supervisor, *Arguments], Answer], *arguments: *Arguments) -> Answer | None:
    """Call `question`, a method of the run's supervisor. Return its answer; None without a supervisor."""
    if forked_process.is_forked():
        return forked_process.ask(run, question, *arguments)
    if actor := _supervisor(run):
        import ray

        return ray.get(getattr(actor, question.__name__).remote(*arguments))
    return None


def emit(run: Run, event: Event) -> None:
    """Record an event in the run's supervisor, if there is one. Wait for `LastWords`, and in a process of its own."""
    if forked_process.is_forked() or isinstance(event, LastWords):
        ask(run, Supervisor.on, event)
    elif actor := _supervisor(run):
        actor.on.remote(event)


def stop_stream(run: Run) -> bool:
    """Let the stream of the run stage its finished rows, and end. Return False if none runs, or without an answer."""
    if actor := _supervisor(run):
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            return bool(ray.get(actor.stop_stream.remote(), timeout=ANSWER_SECONDS))
    return False


def leave(run: Run, worker: str) -> None:
    """Record that the worker has finished its block. Do nothing if the supervisor has ended with its run."""
    if is_there(run):
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            emit(run, BlockLeft(worker))


def is_there(run: Run) -> bool:
    """Return True if this process can reach a supervisor of the run, as each process of its own does."""
    return forked_process.is_forked() or _supervisor(run) is not None


def _supervisor(run: Run) -> Any:
    name, ray = actor_name(run), sys.modules.get("ray")  # a process that did not import Ray is not connected to it
    if name not in _supervisors and ray is not None and ray.is_initialized():
        with contextlib.suppress(ValueError):
            _supervisors[name] = ray.get_actor(name)
    return _supervisors.get(name)


def report_quarantined(block: pa.Table, before: pa.Table | None, run: Run) -> None:
    """Report the rows that are quarantined in `block`, but not in `before`, the block before the work.

    Raise `TooManyQuarantined` if the run now has more quarantined rows than its limit.
    """
    import pyarrow as pa

    from overnight.tasks.rows import blocks
    from overnight.tasks.state.staged_parts import QUARANTINE

    states = block["__state"].to_numpy() == blocks.QUARANTINED
    if before is not None:
        states = states & (before["__state"].to_numpy() != blocks.QUARANTINED)
    if not states.any():
        return
    rows = block.filter(pa.array(states))
    columns = {name: name if name in blocks.IDENTITY else f"__{name}" for name in QUARANTINE.names}
    first = rows.select([name for name in columns.values() if name in rows.column_names])[:DETAILS_AT_ONCE]
    details = [{name: str(row.get(column, "")) for name, column in columns.items()} for row in first.to_pylist()]
    if stop := ask(run, Supervisor.quarantined, rows["__unit"].to_pylist(), rows["__row"].to_pylist(), details):
        raise TooManyQuarantined(stop, details[0]["stage"])


def report(run: Run, stage: str, what: str, is_warning: bool = False) -> None:
    """Record an incident of a stage for the receipt, without waiting. Secrets in the sentence `what` are masked."""
    emit(run, Incident(stage, masked(what), is_warning))


def report_storage_problems(run: Run, stage: str) -> None:
    """Record what this process has waited for in the storage, as incidents of the stage."""
    for problem in take_problems():
        report(run, stage, problem)


def snapshot(run: Run) -> Snapshot:
    """Return what is recorded of the run so far, with the counts of its attempt."""
    return ask(run, Supervisor.snapshot, run.attempt) or Snapshot()


def spent(run: Run) -> dict[str, Any]:
    """Return what the answers of the run's generation cost, as `spent` of its records; nothing without requests."""
    paid = ask(run, Supervisor.spent)
    if not paid or not paid.answers:
        return {}
    cost = round(paid.amount.cost, 9) or None  # no model has prices
    return {"spent": {"answers": paid.answers, "tokens": round(paid.amount.tokens), "cost": cost}}


def kept_log(run: Run) -> str | None:
    """Write the output of user code to the file `run.log`, and return its path; None if there is no output."""
    count, lines = ask(run, Supervisor.lines_since, 0) or (0, [])
    if not count:
        return None
    run.log.write_bytes(text(count, lines).encode())
    return str(run.log)
