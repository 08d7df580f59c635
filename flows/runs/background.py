"""Run a function in a thread while a body runs."""

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def in_background(follow: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Run `follow(*arguments, stop)` in a thread while the body runs.

    Then set the event `stop`, and wait for the thread.
    """
    stop = threading.Event()
    here = contextvars.copy_context()  # without it, the thread would use another Prefect server
    thread = threading.Thread(target=here.run, args=(follow, *arguments, stop), name=follow.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
