"""Log the first quarantined rows of a run while it goes on, under the Prefect task in which they failed."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from prefect import get_run_logger

from overnight.flows.runs.background import in_background
from overnight.flows.runs.current_task import of_task
from overnight.tasks.state.run import Run
from overnight.tasks.workers.supervisor import Supervisor, ask

SECONDS_BETWEEN = 1.0
ROWS_LOGGED = 50


@contextlib.contextmanager
def quarantined_logged(run: Run) -> Iterator[None]:
    """Log the first `ROWS_LOGGED` rows that are quarantined while the body runs, and then how many there are."""
    with in_background(_follow, run, get_run_logger()):
        yield


def _follow(run: Run, logger: "logging.Logger | logging.LoggerAdapter[Any]", stop: threading.Event) -> None:
    logged, is_last = 0, False
    while not is_last:
        is_last = stop.wait(SECONDS_BETWEEN)
        with contextlib.suppress(Exception):  # a failed display must not fail the run
            count, rows = ask(run, Supervisor.quarantined_since, logged, ROWS_LOGGED) or (0, [])
            for row in rows:
                reason = f"{row['error_type']}: {row['error_message']}"
                logger.warning("quarantined: %s in %s: %s", row["row_id"], row["stage"], reason, extra=of_task())
            logged += len(rows)
            if is_last and count > logged:
                logger.warning("%d rows were quarantined; the first %d are logged", count, logged, extra=of_task())
