"""Follow a run while it goes on: its log gets the output of user code, quarantined rows, and incidents of workers.

The ids of the nodes alive are in a file of the generation while an attempt runs. If the process of the attempt dies, as
it does with Ray's head, the file stays, and the next attempt records the nodes that have ended.
"""

import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import ray
from prefect import get_run_logger

from overnight.flows.runs.flow_run import of_task, stage
from overnight.tasks.artifacts import dispensable
from overnight.tasks.resources.cluster import lost_nodes
from overnight.tasks.resources.ray_internals import is_started_here
from overnight.tasks.state.run import Run, now, read_json, write_json
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import Supervisor

SECONDS_BETWEEN, SECONDS_BETWEEN_WRITES = 1.0, 10.0
LINES_AT_ONCE = 100  # the Prefect run's log takes this number of lines in `SECONDS_BETWEEN`
ROWS_LOGGED = 50  # of the quarantined rows

Logger: TypeAlias = "logging.Logger | logging.LoggerAdapter[Any]"


@contextlib.contextmanager
def in_background(follow: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Run `follow(*arguments, stop)` in a thread while the body runs. Then set the event `stop`, and wait for it."""
    stop = threading.Event()
    context = contextvars.copy_context()  # without it, the thread would use another Prefect server
    thread = threading.Thread(target=context.run, args=(follow, *arguments, stop), name=follow.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _every_second(look: Callable[[bool], None], stop: threading.Event) -> None:
    """Call `look` each second until `stop` is set, and then once more, with True. Ignore its errors.

    A display that fails must not fail the run.
    """
    is_last = False
    while not is_last:
        is_last = stop.wait(SECONDS_BETWEEN)
        with contextlib.suppress(Exception):
            look(is_last)


def printed_shown(run: Run) -> contextlib.AbstractContextManager[None]:
    """Copy the output of user code to the run's log in Prefect and to its log file while the body runs.

    Incidents of workers and of trials become warnings in that log.
    """
    return in_background(_every_second, _Output(run, get_run_logger()).copy)


def quarantined_logged(run: Run) -> contextlib.AbstractContextManager[None]:
    """Log the first `ROWS_LOGGED` rows that are quarantined while the body runs, and then how many there are."""
    return in_background(_follow_quarantine, run, get_run_logger())


def lost_nodes_recorded(run: Run) -> contextlib.AbstractContextManager[None]:
    """Record each node of a cluster that ends while the body runs, in the receipt's incidents and in the run's log."""
    if is_started_here():  # a Ray of this process, whose only node is this machine
        return contextlib.nullcontext()
    return in_background(_follow_nodes, run)


@contextlib.contextmanager
def followed(run: Run) -> Iterator[None]:
    """Log the output of user code and the quarantined rows, and record lost nodes, while the body runs."""
    with printed_shown(run), quarantined_logged(run), lost_nodes_recorded(run):
        yield


@contextlib.contextmanager
def incidents_kept(run: Run) -> Iterator[None]:
    """Write the run's incidents, and what it spent, to `run.incidents` if the body fails: the supervisor ends too."""
    try:
        yield
    except BaseException:
        with dispensable("the record of the failure has no incidents"):
            record = supervisor.spent(run)
            if incidents := supervisor.snapshot(run).incidents:
                record["incidents"] = incidents
            if record:
                write_json(run.incidents, record)
        raise


class _Output:
    """Copies lines of user code and incidents from the supervisor of a run to a log."""

    def __init__(self, run: Run, logger: Logger) -> None:
        self.run, self.logger = run, logger
        self.lines, self.lines_in_file, self.file_time = 0, 0, time.monotonic()
        self.incidents: set[str] = set()

    def copy(self, is_last: bool) -> None:
        start = self.lines
        self.lines, lines = supervisor.ask(self.run, Supervisor.lines_since, start) or (0, [])
        for line in lines[:LINES_AT_ONCE]:
            self.logger.info(line, extra=of_task())
        excess = self.lines - start - LINES_AT_ONCE
        if excess > 0:
            self.logger.info(f"({excess:,} lines omitted; read {self.run.log})", extra=of_task())
        supervisor.report_storage_problems(self.run, stage())
        for report in supervisor.snapshot(self.run).incidents:
            incident = f"{report['stage']}: {report['what']}"
            if incident not in self.incidents:
                self.incidents.add(incident)
                self.logger.warning(incident, extra=of_task())
        is_due = is_last or time.monotonic() - self.file_time >= SECONDS_BETWEEN_WRITES
        if self.lines != self.lines_in_file and is_due:
            supervisor.kept_log(self.run)
            self.lines_in_file, self.file_time = self.lines, time.monotonic()


def _follow_quarantine(run: Run, logger: Logger, stop: threading.Event) -> None:
    total = 0

    def log(is_last: bool) -> None:
        nonlocal total
        count, rows = supervisor.ask(run, Supervisor.quarantined_since, total, ROWS_LOGGED) or (0, [])
        for row in rows:
            reason = f"{row['error_type']}: {row['error_message']}"
            logger.warning("quarantined: %s in %s: %s", row["row_id"], row["stage"], reason, extra=of_task())
        total += len(rows)
        if is_last and count > total:
            logger.warning("%d rows were quarantined; the first %d are logged", count, total, extra=of_task())

    _every_second(log, stop)


def _follow_nodes(run: Run, stop: threading.Event) -> None:
    before: list[str] | None = None

    def record(is_last: bool) -> None:
        nonlocal before
        if before is None:  # the nodes of an attempt whose process died
            before = (read_json(run.nodes) or {"alive": []})["alive"]
        nodes = ray.nodes()
        for sentence in lost_nodes(before, nodes):
            supervisor.report(run, stage(), f"{sentence} (seen at {now()})")
        alive = [node["NodeID"] for node in nodes if node["Alive"]]
        if alive != before:
            write_json(run.nodes, {"alive": alive})
        before = alive

    _every_second(record, stop)
    with contextlib.suppress(Exception):
        run.nodes.remove()
