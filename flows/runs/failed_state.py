"""The state of a failed run: its message is one sentence, and the log has the whole error without a traceback."""

import functools
from collections.abc import Callable
from typing import Any

from prefect import get_run_logger
from prefect.states import Failed

from overnight.flows.runs import run_sentences
from overnight.tasks.errors import OvernightError


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
