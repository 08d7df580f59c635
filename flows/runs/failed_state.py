"""The state of a failed run: its message is one sentence, and the log has the whole error without a traceback."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.states import Failed

from overnight.flows.runs import run_sentences
from overnight.tasks.errors import OvernightError, explain


def in_one_sentence(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a flow's function, so that an `OvernightError` ends the run as Failed, with one sentence as its message.

    The sentence has the stage and the reason. Other errors are faults of the code: Prefect logs their tracebacks.
    """

    @functools.wraps(run)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except OvernightError as error:
            if "\n" in error.message:
                get_run_logger().error(error.message)  # the state has its first sentence
            return Failed(message=run_sentences.failed(error), data=error)

    return wrapped


@contextlib.contextmanager
def failed_before_it_began(flow_run_id: UUID) -> Iterator[None]:
    """Set the flow run to Failed if the body raises and the run has not ended, for example because Ray does not start.

    Prefect sets a run to Running before it starts the task runner, and leaves it so if the task runner does not start.
    """
    try:
        yield
    except Exception as error:
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id).state
            if state is None or not state.is_final():
                failed: State[Any] = Failed(message=run_sentences.failed(explain(error, "plan")))
                client.set_flow_run_state(flow_run_id, failed, force=True)
        raise
