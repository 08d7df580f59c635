"""Try a task again: Prefect does so if the task failed, and the flow does so if the task's process died.

Prefect's own retries run in the task's process, so they cannot see its death. Staged parts are kept in both cases.
"""

from typing import Any

from prefect import Task, get_run_logger
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import PrefectFuture

from overnight.flows.job.retries import Retries
from overnight.flows.runs.cancellation import pause
from overnight.flows.runs.local_ray import RayEnded
from overnight.tasks.errors import ServiceUnavailable, WorkerLost, explain
from overnight.tasks.state.run import Run

NAME_FILES = ("infer", "write")  # their files carry the attempt's name, so that no try replaces the files of another
JITTER = 0.5  # of a delay, so that the runs of a cluster do not all come back at the same time


def run_task(task: Task[..., Any], retries: Retries, run: Run, *arguments: Any) -> PrefectFuture[Any]:
    """Run a task, and return the future of the try that succeeded. `arguments` follow `run` in the task's parameters.

    The task is tried again, as `retries` sets it, if its process died, a node was lost, or a service did not answer.
    Raise the error of the last try as an `OvernightError`, which names the stage.
    """
    delays = retries.delays()
    again: dict[str, Any] = {
        "retries": len(delays),
        "retry_delay_seconds": delays,
        "retry_jitter_factor": JITTER,
        "retry_condition_fn": may_pass,
    }
    number, name = 1, dict[str, Any]()
    while True:
        future = task.with_options(**again, **name).submit(run, *arguments)
        try:
            future.result()
            return future
        except Exception as error:
            found = explain(error, task.name)
            is_last = number == retries.attempts or isinstance(found, RayEnded)
            if not future.state.is_crashed() or is_last:
                raise found from None
        get_run_logger().warning("the process of %s died (%s); it starts again", task.name, found)
        pause(delays[number - 1])
        number, run = number + 1, run.as_new_attempt() if task.name in NAME_FILES else run
        name = {"task_run_name": f"{task.name} (attempt {number} of {retries.attempts}: worker died)"}


def may_pass(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Return True if another try may succeed: storage did not answer, or a worker or a node was lost."""
    error = state.result(raise_on_failure=False)
    return isinstance(explain(error, task.name), WorkerLost | ServiceUnavailable)
