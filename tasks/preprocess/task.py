"""Preprocess: try the job's steps on a few rows, and add them to the stream."""

import contextlib
from dataclasses import replace
from functools import partial

import pyarrow as pa
import ray
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from overnight.tasks.engine.stage import Stage
from overnight.tasks.engine.stream import FirstReading, Stream
from overnight.tasks.errors import StageFailed, explain
from overnight.tasks.preprocess.decided_duplicates import Decided, Keys
from overnight.tasks.preprocess.kinds import Deduplicate, Step
from overnight.tasks.preprocess.query_image import query_image, readable_image
from overnight.tasks.preprocess.run_steps import Steps, try_first_rows
from overnight.tasks.resources.plan import TASK_RETRIES, Plan
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import arrow_bytes
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.forked_process import ProcessDied, in_process_of_its_own

__all__ = ["preprocess", "query_image", "readable_image"]

SAMPLE_ROWS = 8


@task(
    name="preprocess",
    task_run_name="preprocess: try the steps on a few rows",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def preprocess(run: Run, steps: list[Step], plan: Plan, stream: Stream) -> State[Stream]:
    """Try the steps on a few rows, so that a wrong setting fails now, and return the stream with the steps.

    Raise `ContractError` if a setting does not fit the columns, `StageFailed` if the rows kill each process.
    """
    try:
        sample = _try(run, steps, plan, stream.read)
    except Exception as error:
        raise explain(error, "preprocess") from None
    run.sample.write_bytes(arrow_bytes(sample))
    stage, readings = _with_decisions(steps, blocks.seconds_a_row(sample, "preprocess"))
    stream = replace(stream, steps=stage, sample=run.sample, first_readings=readings)
    rows = f"{len(sample):,} row{'s' * (len(sample) != 1)}"
    names = ", ".join(step.kind for step in steps)
    message = f"{names} tried on {rows}" if steps else f"no steps; {rows} read as a sample"
    return Completed(message=message, data=stream)


def _with_decisions(steps: list[Step], pace: float) -> tuple[Steps | None, tuple[FirstReading, ...]]:
    """Return the steps of the stream, and for each `deduplicate` the reading that decides its duplicates before."""
    stream_steps: list[Step | Decided] = []
    readings: list[FirstReading] = []
    for step in steps:
        if isinstance(step, Deduplicate):
            keys = Keys(Steps(tuple(stream_steps), pace), step.rule)
            readings.append(FirstReading(len(readings), keys, step.rule))
            stream_steps.append(Decided(readings[-1].number))
        else:
            stream_steps.append(step)
    return Steps(tuple(stream_steps), pace) if steps else None, tuple(readings)


def _try(run: Run, steps: list[Step], plan: Plan, read: Stage) -> pa.Table:
    """Return a few rows after every step. They run in their own process, because a row may kill it."""
    count = min([SAMPLE_ROWS, *(2 * step.rows_at_once for step in steps)])
    trial = (read, Steps(tuple(steps)), run, count)
    if fork_server.is_there():
        for _ in range(TASK_RETRIES + 1):
            with contextlib.suppress(ProcessDied):
                return in_process_of_its_own(partial(try_first_rows, *trial), supervisor.ask)
    else:
        remote = ray.remote(num_cpus=plan.task_cpus, max_retries=TASK_RETRIES)(try_first_rows)
        with contextlib.suppress(ray.exceptions.WorkerCrashedError):
            return ray.get(remote.remote(*trial))
    raise StageFailed(
        f"the steps' process ended {TASK_RETRIES + 1} times while {count} rows were tried: they crash, or "
        "take longer than row_timeout_seconds, for any row.",
        "preprocess",
        "WorkerCrashedError",
    )
