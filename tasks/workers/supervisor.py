"""One named Ray actor per run, to which all of its workers report quarantined rows, running rows, incidents and lines.

The flow's own process owns it, so it outlives any worker and every attempt, and ends with the run. Without an actor
(when a leaf is tried by itself), reports are dropped. A process forked for a worker reports through that worker. The
import of this file imports neither Ray, which a process without a supervisor does not need, nor PyArrow, which the
supervisor's own process does not need.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import TooManyQuarantined
from overnight.tasks.storage.failed_requests import take_problems
from overnight.tasks.workers import forked_process
from overnight.tasks.workers.poison_rows import PoisonRowTracker
from overnight.tasks.workers.run_log import RunLog

if TYPE_CHECKING:
    import pyarrow as pa

    from overnight.tasks.state.run import Run

DETAILS_AT_ONCE = 100  # the most rows of one report that have their reasons
KEPT = 1000  # rows whose reasons are kept, for a run that fails before it has staged them


class QuarantineLimit:
    """A counter of distinct quarantined rows, which stops a run as soon as there are more than `limit`.

    `already` is the number of rows that earlier attempts staged as quarantined. `of` is a phrase for the message: it
    names the rows of a limit, such as `of this partition`. A row that Ray runs twice counts once, because rows are
    identified by unit and number. The final count comes from the staged parts.
    """

    def __init__(self, limit: int, already: int, of: str) -> None:
        self._limit, self._already, self._of = limit, already, of
        self._seen: set[tuple[int, int]] = set()
        self._details: dict[tuple[int, int], dict[str, str]] = {}

    def details(self) -> list[dict[str, str]]:
        """Return the first `KEPT` reported rows that came with a reason: dicts with the columns of the quarantine."""
        return list(self._details.values())

    def count(self) -> int:
        """Return the number of distinct rows that were reported in this attempt."""
        return len(self._seen)

    def report(self, units: list[int], numbers: list[int], details: list[dict[str, str]]) -> str | None:
        """Record quarantined rows by their units and row numbers. Return why the run must stop; None if it may go on.

        `details` has at least one dict with the columns of the quarantine; they are for the first of these rows, in
        order.
        """
        rows = list(zip(units, numbers, strict=True))
        self._seen.update(rows)
        for row, told in zip(rows, details, strict=False):
            if len(self._details) < KEPT:
                self._details.setdefault(row, told)
        found = len(self._seen) + self._already
        if found <= self._limit:
            return None
        first = next(iter(self._details.values()))
        return (
            f"at least {found} rows are quarantined; checks.max_quarantined allows {self._limit} {self._of}. "
            "Correct the cause, or allow more. "
            f"The first: {first['row_id']} in {first['stage']}: {first['error_type']}: {first['error_message']}"
        )


class Supervisor(PoisonRowTracker):
    """The state of a run's supervisor: records of poison and quarantined rows, counts, incidents and log lines."""

    def __init__(self) -> None:
        super().__init__()
        self._limit: QuarantineLimit | None = None
        self._incidents: Counter[tuple[str, str]] = Counter()
        self._warnings: list[str] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._passed: dict[tuple[str, str, tuple[int, int]], int] = {}
        self._device_memory: int | None = None
        self._log = RunLog()

    def allow(self, limit: int, already: int, of: str = "of this partition") -> None:
        """Allow `limit` quarantined rows of this partition from now on.

        Earlier attempts have staged `already` of them. `of` names the rows of the limit in messages.
        """
        self._limit = QuarantineLimit(limit, already, of)

    def quarantined(self, units: list[int], numbers: list[int], details: list[dict[str, str]]) -> str | None:
        """Record quarantined rows by their units and row numbers. Return why the run must stop; None if it may go on.

        `details` has at least one dict with the columns of the quarantine; they are for the first of these rows, in
        order.
        """
        return self._limit.report(units, numbers, details) if self._limit else None

    def details(self) -> list[dict[str, str]]:
        """Return the first rows that were quarantined in this attempt: dicts with the columns of the quarantine."""
        return self._limit.details() if self._limit else []

    def quarantined_since(self, number: int, stop: int) -> tuple[int, list[dict[str, str]]]:
        """Return how many rows this attempt quarantined, and those from `number` to `stop` in the order of reports."""
        return (self._limit.count(), self._limit.details()[number:stop]) if self._limit else (0, [])

    def read(self, attempt: str, unit: int, ends: int) -> None:
        """Record that an attempt read a block of units, in which `ends` rows are END rows.

        An END row has the number of rows of a unit, unknown before. `unit` is the first unit of the block. A block that
        is read again counts once.
        """
        self._ends[attempt, unit] = ends

    def ends(self, attempt: str) -> int:
        """Return the number of END rows that an attempt has read so far."""
        return sum(ends for (of, _), ends in self._ends.items() if of == attempt)

    def passed(self, attempt: str, stage: str, first: tuple[int, int], rows: int) -> None:
        """Record that `rows` rows of one input have passed `stage` inside a worker that does the work of several.

        `first` identifies the input. An input that is reported again counts once.
        """
        key = (attempt, stage, first)
        self._passed[key] = max(rows, self._passed.get(key, 0))

    def rows_passed(self, attempt: str) -> dict[str, int]:
        """Return stage -> the rows that have passed it inside workers that do the work of several stages."""
        found: Counter[str] = Counter()
        for (of, stage, _), rows in self._passed.items():
            if of == attempt:
                found[stage] += rows
        return dict(found)

    def happened(self, stage: str, what: str, is_warning: bool = False) -> None:
        """Record an incident of a stage: `what` is a sentence about it, which `is_warning` adds to `warnings`."""
        self._incidents[stage, what] += 1
        if is_warning and what not in self._warnings:
            self._warnings.append(what)

    def warnings(self) -> list[str]:
        """Return the incidents that are warnings, each once."""
        return self._warnings

    def incidents(self) -> list[dict[str, Any]]:
        """Return the incidents as dicts with `stage`, `what` and `times`, the number of equal ones."""
        return [{"stage": stage, "what": what, "times": n} for (stage, what), n in sorted(self._incidents.items())]

    def took_device_memory(self, size: int) -> None:
        """Record that a worker has taken `size` bytes on one accelerator."""
        self._device_memory = max(size, self._device_memory or 0)

    def peak_device_memory(self) -> int | None:
        """Return the most bytes that a worker has taken on one accelerator, None if no worker reported any."""
        return self._device_memory

    def said(self, lines: list[str]) -> None:
        """Add lines of output of user code to the run's log."""
        self._log.add(lines)

    def said_since(self, number: int) -> tuple[int, list[str]]:
        """Return the number of all lines in the run's log, and the kept lines after the first `number`."""
        return self._log.since(number)

    def said_so_far(self) -> str:
        """Return the run's log as one text; empty if there are no lines."""
        return self._log.text()


def actor_name(run: Run) -> str:
    return f"overnight-{run.job}-{run.generation}-{run.token}"


@contextlib.contextmanager
def supervised(run: Run) -> Iterator[None]:
    """Run the run's supervisor, a named Ray actor, while the body runs.

    It is on the node of this process if Ray can place it there. If it is lost, it starts again with empty state. The
    state saves time, and no row depends on it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    again = {"max_restarts": -1, "max_task_retries": -1}
    actor = ray.remote(Supervisor).options(name=actor_name(run), num_cpus=0, scheduling_strategy=here, **again).remote()
    try:
        yield
    finally:
        ray.kill(actor)


def ask(run: Run, method: str, *arguments: Any) -> Any:
    """Call the method `method` of the run's supervisor, and return its result; None if there is no supervisor."""
    if forked_process.is_forked():
        return forked_process.ask(run, method, *arguments)
    if found := _supervisor(run):
        import ray

        return ray.get(getattr(found, method).remote(*arguments))
    return None


def tell(run: Run, method: str, *arguments: Any) -> None:
    """Call the method `method` of the run's supervisor, and do not wait for the result.

    If there is no supervisor, do nothing. A forked process waits, because it calls through its parent.
    """
    if forked_process.is_forked():
        forked_process.ask(run, method, *arguments)
    elif found := _supervisor(run):
        getattr(found, method).remote(*arguments)


def leave(run: Run, worker: str) -> None:
    """Record that the worker has finished its block, and wait until that is recorded.

    Do nothing if there is no supervisor, or if it has ended with its run.
    """
    if is_there(run):
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ask(run, "leave", worker)


def is_there(run: Run) -> bool:
    """Return True if this process can reach a supervisor of the run. Of a forked process this is assumed."""
    return forked_process.is_forked() or _supervisor(run) is not None


def _supervisor(run: Run) -> Any:
    """Return a Ray actor handle; None if there is no supervisor."""
    with contextlib.suppress(LookupError):
        return _find(actor_name(run))
    return None


@lru_cache(maxsize=4)
def _find(name: str) -> Any:
    ray = sys.modules.get("ray")  # a process that did not import Ray is not connected to it
    if ray is None or not ray.is_initialized():
        raise LookupError(name)
    try:
        return ray.get_actor(name)
    except ValueError as error:
        raise LookupError(name) from error  # raised, so that the cache stores no result


def report_quarantined(block: pa.Table, before: pa.Table | None, run: Run) -> None:
    """Report to the run's supervisor the rows that are quarantined in `block`, but not in `before`.

    `before` is the block before the work; if it is None, report all quarantined rows. Raise `TooManyQuarantined` if the
    run now has more quarantined rows than its limit.
    """
    import pyarrow as pa

    from overnight.tasks.rows import blocks
    from overnight.tasks.state.staged_parts import QUARANTINE

    states = block["__state"].to_numpy() == blocks.QUARANTINED
    if before is not None:
        states = states & (before["__state"].to_numpy() != blocks.QUARANTINED)
    if not states.any():
        return
    new = block.filter(pa.array(states))
    names = {name: name if name in blocks.IDENTITY else f"__{name}" for name in QUARANTINE.names}
    shown = new.select([name for name in names.values() if name in new.column_names])[:DETAILS_AT_ONCE].to_pylist()
    details = [{name: str(row.get(column, "")) for name, column in names.items()} for row in shown]
    if stop := ask(run, "quarantined", new["__unit"].to_pylist(), new["__row"].to_pylist(), details):
        raise TooManyQuarantined(stop, details[0]["stage"])


def quarantined_since(run: Run, number: int, stop: int) -> tuple[int, list[dict[str, str]]]:
    """Return how many rows the run's attempt quarantined, and those from `number` to `stop` in the order of reports.

    A row is a dict with the columns of the quarantine.
    """
    found: tuple[int, list[dict[str, str]]] = ask(run, "quarantined_since", number, stop) or (0, [])
    return found


def report(run: Run, stage: str, what: str, is_warning: bool = False) -> None:
    """Record an incident of a stage for the receipt, without waiting.

    `what` is a sentence, in which secrets are masked. If `is_warning`, it is also one of the receipt's warnings.
    """
    tell(run, "happened", stage, masked(what), is_warning)


def report_storage_problems(run: Run, stage: str) -> None:
    """Record what this process had to wait for in the storage since the last call, as incidents of the stage."""
    for problem in take_problems():
        report(run, stage, problem)


def incidents(run: Run) -> list[dict[str, Any]]:
    """Return the incidents of the run so far, as dicts with `stage`, `what` and `times`, the number of equal ones."""
    return list(ask(run, "incidents") or [])


def warnings(run: Run) -> tuple[str, ...]:
    """Return the incidents of the run so far that are warnings, each once."""
    return tuple(ask(run, "warnings") or ())


def lines_since(run: Run, number: int) -> tuple[int, list[str]]:
    """Return the number of all lines that user code wrote in the run, and the kept lines after the first `number`."""
    found: tuple[int, list[str]] = ask(run, "said_since", number) or (0, [])
    return found


def kept_log(run: Run) -> str | None:
    """Write the output of user code to the file `run.log`, and return the file's place; None if there is no output."""
    if not (text := ask(run, "said_so_far")):
        return None
    run.log.write_bytes(text.encode())
    return str(run.log)
