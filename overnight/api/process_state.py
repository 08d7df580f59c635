"""Restore this process after a call from Python: Overnight, Prefect and Ray change it while a run goes on.

After the call the process has its environment variables, import path, logging, exception hooks, signal handlers and
warning filters as they were. The run has a thread of its own, so that an event loop in the caller's thread and its
signals do not matter.
"""

import contextlib
import contextvars
import functools
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from overnight.api.logging_state import logging_restored
from overnight.tasks.config.proxies import leave_out_this_machine
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

            with _prefect_log(), stoppable() as stopping, ThreadPoolExecutor(1, "overnight") as pool:
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
    """Restore the state of the process after the body: what the docstring of this module lists.

    The result is a context manager, and can also decorate a function.
    """
    environment, path = dict(os.environ), list(sys.path)
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    is_main = threading.current_thread() is threading.main_thread()  # only there a handler of a signal can be set
    signals = {number: signal.getsignal(number) for number in signal.valid_signals()} if is_main else {}
    with warnings.catch_warnings(), logging_restored():
        try:
            leave_out_this_machine()
            yield
        finally:
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            os.environ.update(environment)
            sys.path[:] = path
            sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
            for number, handler in signals.items():
                if handler is not None and signal.getsignal(number) != handler:  # None: not set from Python
                    signal.signal(number, handler)


@contextlib.contextmanager
def _prefect_log() -> Iterator[None]:
    """Send a run's log to the Prefect server, even if the caller has configured Prefect's loggers before the import.

    Mute Prefect's output to the terminal, where the progress is shown. Inside a user's flow, change nothing.
    """
    from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler
    from prefect.settings import PREFECT_LOGGING_LEVEL

    from overnight.api.local_run import is_in_a_flow

    if is_in_a_flow():
        yield
        return
    muted = [
        (handler, handler.level)
        for handler in logging.getLogger().handlers
        if isinstance(handler, PrefectConsoleHandler)
    ]
    for handler, _ in muted:
        handler.setLevel(MUTED)
    prefect = logging.getLogger("prefect")
    prefect.setLevel(prefect.level or PREFECT_LOGGING_LEVEL.value())
    for runs in (logging.getLogger("prefect.flow_runs"), logging.getLogger("prefect.task_runs")):
        if not any(isinstance(handler, APILogHandler) for handler in runs.handlers):
            runs.addHandler(APILogHandler())
    try:
        yield
    finally:
        for handler, before in muted:
            handler.setLevel(before)
