"""Retry transient errors of services and storage that a step or a model calls, before rows are blamed."""

import logging
import time

import pyarrow as pa

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import OvernightError, RowError, ServiceUnavailable
from overnight.tasks.rows.result import Outcome, Work
from overnight.tasks.storage.transient_errors import is_passing

RETRIES = RetryPolicy(max_tries=5, first_wait_seconds=1.0, longest_wait_seconds=8.0)

_log = logging.getLogger("overnight.patience")


def with_retries(work: Work, stage: str) -> Work:
    """Return a function that does `work` on the rows of one block, and tries again after transient errors.

    It raises `ServiceUnavailable` if several rows still fail alone. Later calls do not wait, to find the failing rows.
    """
    waits = list(RETRIES.waits())

    def retry(live: pa.Table) -> Outcome:
        while True:
            try:
                return _without_passing(work(live)) if waits else work(live)
            except OvernightError:
                raise
            except Exception as error:
                if not waits or not is_passing(error):
                    raise
                seconds = waits.pop(0)
                _log.warning("%s: %s; trying again in %.1f s", type(error).__name__, error, seconds)
                time.sleep(seconds)
                if not waits and len(live) > 1:
                    _refuse_if_down(work, live, error, stage)

    return retry


def _without_passing(outcome: Outcome) -> Outcome:
    """Return the outcome. Raise the transient error of a row that async code ran on its own."""
    for error in outcome.failed.values():
        if not isinstance(error, RowError) and is_passing(error):
            raise error
    return outcome


def _refuse_if_down(work: Work, live: pa.Table, error: Exception, stage: str) -> None:
    for row in range(len(live)):
        try:
            _without_passing(work(live[row : row + 1]))
            return
        except OvernightError:
            raise
        except Exception as row_error:
            if not is_passing(row_error):
                return
    raise ServiceUnavailable(
        f"none of {len(live)} rows succeeded in {RETRIES.max_tries} tries: {type(error).__name__}: {error}. "
        "The service that the step or model calls is down; run again to resume where the staged parts end.",
        stage,
    ) from error
