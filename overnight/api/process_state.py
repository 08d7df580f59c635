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

from overnight.tasks.config.proxies import leave_out_this_machine
from overnight.tasks.errors import OvernightError

WRITTEN_FOR = "Python 3.11 to 3.14"  # `logging._handlerList` has no public name
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
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
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

    return wrapper


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the state of the process after the body: what the docstring of this module lists.

    The result is a context manager, and can also decorate a function.
    """
    environment, path = dict(os.environ), list(sys.path)
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    signals = {}
    if threading.current_thread() is threading.main_thread():  # only there a handler of a signal can be set
        signals = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with warnings.catch_warnings(), _logging_restored():
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
def _logging_restored() -> Iterator[None]:
    """Restore every logger and handler that exists now, and the factory of records, after the body."""
    loggers = [logging.getLogger()]
    loggers += [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    factory = logging.getLogRecordFactory()
    with contextlib.ExitStack() as restores, _handlers_kept_open():
        restores.callback(logging.setLogRecordFactory, factory)
        for logger in loggers:
            _restore_later(logger, restores)
        yield


def _restore_later(logger: logging.Logger, restores: contextlib.ExitStack) -> None:
    """Let the stack, when it closes, give a logger and its handlers their present state again."""
    handlers, filters = list(logger.handlers), list(logger.filters)
    level, propagates, is_off = logger.level, logger.propagate, logger.disabled
    for handler in handlers:
        restores.callback(setattr, handler, "filters", list(handler.filters))
        restores.callback(handler.setLevel, handler.level)
        restores.callback(handler.setFormatter, handler.formatter)

    def restore() -> None:
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagates, is_off
        logger.handlers[:], logger.filters[:] = handlers, filters

    restores.callback(restore)


@contextlib.contextmanager
def _handlers_kept_open() -> Iterator[None]:
    """Hide the present handlers from `logging.config.dictConfig` while the body runs.

    Prefect calls it on import. It closes all handlers of the process and removes their names. A closed handler of a
    file with mode `w` writes nothing more, and Python flushes no closed handler when it exits.
    """
    present = list(logging._handlerList)  # type: ignore[attr-defined]
    logging._handlerList.clear()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        logging._handlerList[:0] = present  # type: ignore[attr-defined]
        for reference in present:
            if handler := reference():
                handler.set_name(handler.get_name())  # registers the name again


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
    levels = {}
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            levels[handler] = handler.level
            handler.setLevel(MUTED)
    prefect = logging.getLogger("prefect")
    prefect.setLevel(prefect.level or PREFECT_LOGGING_LEVEL.value())
    for runs in (logging.getLogger("prefect.flow_runs"), logging.getLogger("prefect.task_runs")):
        if not any(isinstance(handler, APILogHandler) for handler in runs.handlers):
            runs.addHandler(APILogHandler())
    try:
        yield
    finally:
        for handler, level in levels.items():
            handler.setLevel(level)
