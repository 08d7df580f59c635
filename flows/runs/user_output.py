"""Copy the output of user code in Ray's workers to the log of the Prefect run, as it arrives, and to the run's file.

Incidents of workers and of trials become warnings in that log.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from prefect import get_run_logger

from overnight.flows.runs.background import in_background
from overnight.flows.runs.current_task import of_task, stage
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor

SECONDS_BETWEEN, SECONDS_BETWEEN_WRITES = 1.0, 10.0
LINES_AT_ONCE = 100  # the Prefect run's log takes this number of lines in `SECONDS_BETWEEN`


@contextlib.contextmanager
def printed_shown(run: Run) -> Iterator[None]:
    """Copy the output of user code to the run's log in Prefect and to its log file while the body runs.

    Copy the rest after the body has ended, also after an error.
    """
    with in_background(_follow, run, get_run_logger()):
        yield


def _follow(run: Run, logger: "logging.Logger | logging.LoggerAdapter[Any]", stop: threading.Event) -> None:
    seen, kept, kept_at, is_last = 0, 0, time.monotonic(), False
    warned: set[str] = set()
    while not is_last:
        is_last = stop.wait(SECONDS_BETWEEN)
        with contextlib.suppress(Exception):  # a failed display must not fail the run
            before = seen
            seen, lines = supervisor.ask(run, supervisor.Supervisor.lines_since, seen) or (0, [])
            for line in lines[:LINES_AT_ONCE]:
                logger.info(line, extra=of_task())
            if (left_out := seen - before - LINES_AT_ONCE) > 0:
                logger.info(f"({left_out:,} lines omitted; read {run.log})", extra=of_task())
            supervisor.report_storage_problems(run, stage())
            incidents = [f"{found['stage']}: {found['what']}" for found in supervisor.snapshot(run).incidents]
            for incident in dict.fromkeys(incidents):
                if incident not in warned:
                    logger.warning(incident, extra=of_task())
            warned.update(incidents)
            if seen != kept and (is_last or time.monotonic() - kept_at >= SECONDS_BETWEEN_WRITES):
                supervisor.kept_log(run)
                kept, kept_at = seen, time.monotonic()
