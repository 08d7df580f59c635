"""Restore this process after a call from Python: Overnight, Prefect and Ray change it while a run goes on.

After the call the process has its environment variables, import path, log levels and handlers, and warning filters as
they were. The run has a thread of its own, so that an event loop in the caller's thread and its signals do not matter.
"""

import contextlib
import contextvars
import functools
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from overnight.tasks.errors import OvernightError

P = ParamSpec("P")
T = TypeVar("T")
MUTED = logging.CRITICAL + 1
# Calls in several threads run one after another, because variables and paths belong to the whole process.
ONE_AT_A_TIME = threading.Lock()


def leaves_no_trace(call: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function of the API: run it in a thread, and then restore the state of the process.

    If the caller's thread gets an exception meanwhile, such as KeyboardInterrupt, the run ends as cancelled. Then the
    exception is raised.
    """

    @functools.wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with ONE_AT_A_TIME, restored():
            from overnight.flows.runs.cancellation import stoppable

            with _quiet_prefect(), stoppable() as stopping, ThreadPoolExecutor(1, "overnight") as pool:
                try:
                    context = contextvars.copy_context()
                    return pool.submit(context.run, functools.partial(call, *args, **kwargs)).result()
                except OvernightError as error:
                    raise error.with_traceback(None) from None  # the frames are Prefect's and Ray's
                except BaseException:
                    stopping.set()
                    raise

    return wrapped


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the environment, the import path, the logging and the warning filters of the process after the body.

    The result is a context manager, and can also decorate a function.
    """
    environment, path, root = dict(os.environ), list(sys.path), logging.getLogger()
    known = list(logging.root.manager.loggerDict.items())
    levels = {name: found.level for name, found in known if isinstance(found, logging.Logger)}
    level, handlers = root.level, list(root.handlers)
    with warnings.catch_warnings():
        try:
            yield
        finally:
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            os.environ.update(environment)
            sys.path[:] = path
            root.setLevel(level)
            root.handlers[:] = handlers
            for name, before in levels.items():
                logging.getLogger(name).setLevel(before)


@contextlib.contextmanager
def _quiet_prefect() -> Iterator[None]:
    """Mute Prefect's output to the terminal, where the progress is shown. Inside a user's flow it stays."""
    from prefect.logging.handlers import PrefectConsoleHandler

    from overnight.api.local_run import is_in_a_flow

    shown = [] if is_in_a_flow() else logging.getLogger().handlers
    muted = [(handler, handler.level) for handler in shown if isinstance(handler, PrefectConsoleHandler)]
    for handler, _ in muted:
        handler.setLevel(MUTED)
    try:
        yield
    finally:
        for handler, before in muted:
            handler.setLevel(before)
