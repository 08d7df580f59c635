"""One named Ray actor per run, to which all of its workers report quarantined rows, running rows, incidents and lines.

The flow's own process owns it, so it outlives any worker and every attempt, and ends with the run. Without an actor
(when a leaf is tried by itself), reports are dropped. A process forked for a worker reports through that worker. The
import of this file does not import Ray, which a process without a supervisor does not need.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import TooManyQuarantined
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import QUARANTINE
from overnight.tasks.workers import forked_process
from overnight.tasks.workers.poison_rows import PoisonRowTracker
from overnight.tasks.workers.run_log import RunLog

DETAILS_AT_ONCE = 100  # the most rows of one report that have their reasons
KEPT = 1000  # rows whose reasons are kept, for a run that fails before it has staged them


class QuarantineLimit:
    """A counter of distinct quarantined rows, which stops a run as soon as more than `limit` are certain.

    `already` is the number of rows that are staged as quarantined before. Rows have names, so work that Ray does twice
    counts once. The final count comes from the staged parts.
    """

    def __init__(self, limit: int, already: int) -> None:
        self._limit, self._already = limit, already
        self._seen: set[tuple[int, int]] = set()
        self._details: dict[tuple[int, int], dict[str, str]] = {}

    def details(self) -> list[dict[str, str]]:
        """Return the first reported rows, each with its reason, as in the quarantine."""
        return list(self._details.values())

    def report(self, units: list[int], numbers: list[int], details: list[dict[str, str]]) -> str | None:
        """Record quarantined rows by their units and row numbers. Return the reason to stop the run, or None.

        `details` are the quarantine's records of the first of these rows, at least one.
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
            f"at least {found} rows are quarantined; checks.max_quarantined allows {self._limit} of this partition. "
            "Correct the cause, or allow more. "
            f"The first: {first['row_id']} in {first['stage']}: {first['error_type']}: {first['error_message']}"
        )


class Supervisor(PoisonRowTracker):
    """The state of the actor: the record of poison rows, quarantined rows, counts of rows, incidents and lines."""

    def __init__(self) -> None:
        super().__init__()
        self._limit: QuarantineLimit | None = None
        self._incidents: Counter[tuple[str, str]] = Counter()
        self._ends: dict[tuple[str, int], int] = {}
        self._padded: dict[tuple[str, str, tuple[int, int]], tuple[int, int]] = {}
        self._log = RunLog()

    def allow(self, limit: int, already: int) -> None:
        """Allow `limit` quarantined rows of this partition from now on; `already` of them are staged."""
        self._limit = QuarantineLimit(limit, already)

    def quarantined(self, units: list[int], numbers: list[int], details: list[dict[str, str]]) -> str | None:
        return self._limit.report(units, numbers, details) if self._limit else None

    def details(self) -> list[dict[str, str]]:
        """Return the first rows that were quarantined in this attempt, each with its reason."""
        return self._limit.details() if self._limit else []

    def read(self, attempt: str, unit: int, ends: int) -> None:
        """Record that an attempt read the block of units that begins with `unit`, which has `ends` rows of state END.

        The block may be read again, and then counts once.
        """
        self._ends[attempt, unit] = ends

    def ends(self, attempt: str) -> int:
        return sum(ends for (of, _), ends in self._ends.items() if of == attempt)

    def padded(self, attempt: str, stage: str, first: tuple[int, int], rows: int, padding: int) -> None:
        """Record that a block on its way to `stage` has `rows` rows and `padding` rows of padding.

        `first` has unit and row of its first row. The block may be reported again, and then counts once.
        """
        self._padded[attempt, stage, first] = (rows, padding)

    def padding(self, attempt: str) -> dict[str, tuple[int, int]]:
        """Return the sums (rows, rows of padding) of an attempt's padded blocks, by the stage that reads them."""
        found: dict[str, tuple[int, int]] = {}
        for (of, stage, _), (rows, padding) in self._padded.items():
            if of == attempt:
                before = found.get(stage, (0, 0))
                found[stage] = (before[0] + rows, before[1] + padding)
        return found

    def happened(self, stage: str, what: str) -> None:
        self._incidents[stage, what] += 1

    def incidents(self) -> list[dict[str, Any]]:
        return [{"stage": stage, "what": what, "times": n} for (stage, what), n in sorted(self._incidents.items())]

    def said(self, lines: list[str]) -> None:
        """Record lines of output of user code."""
        self._log.add(lines)

    def said_since(self, number: int) -> tuple[int, list[str]]:
        return self._log.since(number)

    def said_so_far(self) -> str:
        return self._log.text()


def actor_name(run: Run) -> str:
    return f"overnight-{run.job}-{run.generation}-{run.token}"


@contextlib.contextmanager
def supervised(run: Run) -> Iterator[None]:
    """Run the run's supervisor while the body runs, on the flow's node if that is part of the cluster.

    If it is lost, it starts again with empty state. The state saves time, and no row depends on it.
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
    """Call a method of the run's supervisor, and return its result. Return None without a supervisor."""
    if forked_process.is_forked():
        return forked_process.ask(run, method, *arguments)
    if found := _supervisor(run):
        import ray

        return ray.get(getattr(found, method).remote(*arguments))
    return None


def tell(run: Run, method: str, *arguments: Any) -> None:
    """Call a method of the run's supervisor, without waiting for the result."""
    if forked_process.is_forked():
        forked_process.ask(run, method, *arguments)
    elif found := _supervisor(run):
        getattr(found, method).remote(*arguments)


def leave(run: Run, worker: str) -> None:
    """Record that the worker left its block, and wait for it. Do nothing if the supervisor has ended with its run."""
    if is_there(run):
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ask(run, "leave", worker)


def is_there(run: Run) -> bool:
    """Return True if the run has a supervisor."""
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
    """Report the rows that are quarantined in `block`, but not in `before`, which is the block before the work.

    Without `before`, report all quarantined rows. Raise `TooManyQuarantined` if the run has more than its limit.
    """
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


def report(run: Run, stage: str, what: str) -> None:
    """Record an incident of a stage for the receipt, without waiting. `what` is a sentence about it."""
    tell(run, "happened", stage, masked(what))


def incidents(run: Run) -> list[dict[str, Any]]:
    """Return the incidents of workers so far, as dictionaries with `stage`, `what` and `times`."""
    return list(ask(run, "incidents") or [])


def lines_since(run: Run, number: int) -> tuple[int, list[str]]:
    """Return the number of all lines that user code wrote, and the kept ones after the first `number`."""
    found: tuple[int, list[str]] = ask(run, "said_since", number) or (0, [])
    return found


def kept_log(run: Run) -> str | None:
    """Write the output of user code to the run's file, and return the place of the file; None without output."""
    if not (text := ask(run, "said_so_far")):
        return None
    run.log.write_bytes(text.encode())
    return str(run.log)
