"""Wait in the flow's process for a provider's batches, while no worker of Ray is held.

Cancel ends the batches at the provider. After a death of this process, the next run goes on with them.
"""

import contextlib
import time
from datetime import datetime
from functools import partial

from prefect import get_run_logger

from overnight.flows.job.model import Job
from overnight.flows.runs.cancellation import INTERRUPTIONS, pause
from overnight.flows.runs.run_page import progress_shown
from overnight.tasks.engine.progress import Progress
from overnight.tasks.errors import BudgetReached, OvernightError
from overnight.tasks.infer.task import Clock, Filling, batched, filling_of, forsaken
from overnight.tasks.state import lease
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.spending import minutes_reached


def wait_for_batches(run: Run, job: Job) -> None:
    """Fill the log of answers by the batches of the job's first model. Return when all have ended."""
    filling = _filling(run, job)
    start, logger = time.monotonic(), get_run_logger()
    with progress_shown(run) as show_progress:
        latest = ""

        def show(text: str) -> None:
            nonlocal latest
            end_at_budget(run)
            if text != latest:
                logger.info(text)
            latest = text
            with contextlib.suppress(Exception):  # a display that fails must not fail the run
                show_progress(Progress(seconds=time.monotonic() - start, waits_for=text))

        try:
            record = filling.run(show)
        except INTERRUPTIONS:
            with contextlib.suppress(OvernightError):
                filling.cancel()
            raise
    counts = f"{record['answered']:,} of {record['requests']:,} requests answered by {len(record['batches']):,} batches"
    logger.info("batch: %s, %s left for requests outside batches", counts, f"{record['left']:,}")


def end_at_budget(run: Run) -> None:
    """Raise `BudgetReached` once the run has taken its minutes. The next run goes on with its batches."""
    if run.ends_at and time.time() >= run.ends_at:
        raise BudgetReached(minutes_reached(run.budget["minutes"]))


def warn_of_forsaken(run: Run, job: Job) -> None:
    """Name the batches that earlier settings of the job have begun, because no run pays for them knowingly."""
    batches = forsaken(job.models, run)
    if batches:
        _warn(
            run,
            f"batch: this run does not use {len(batches):,} batches at the provider, which may be paid: "
            f"{', '.join(batches[:5])}. Cancel them there, or run with the settings that made them",
        )


def _filling(run: Run, job: Job) -> Filling:
    model = batched(job.models, run)
    assert model
    assert model.batch
    began_at = datetime.fromisoformat((read_json(run.home / "generation.json") or {})["created_at"])
    return filling_of(
        run,
        model,
        Clock(pause=pause),
        model.batch.deadline(began_at, job.timezone),
        partial(lease.check, run.ledger, run.token),
        partial(_warn, run),
    )


def _warn(run: Run, sentence: str) -> None:
    get_run_logger().warning(sentence)
    supervisor.report(run, "infer", sentence, is_warning=True)
