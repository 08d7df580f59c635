"""Call functions in a process of its own, because a file may kill or block the process."""

import multiprocessing
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

CONTEXT = multiprocessing.get_context("spawn")
DEEPEST = 10_000  # a value may hold lists in hundreds of lists


class Crashed(Exception):
    """Raised when the process ended, the call took too long, or it raised an error that belongs to no row."""


class Apart:
    """A process that calls functions of modules, one after another, and restarts after each death."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._process: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return the function's result. Raise `Crashed` with the reason if there is none."""
        if self._process is None:
            self._connection, theirs = CONTEXT.Pipe()
            self._process = CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._connection.send((function, given))
        try:
            if not self._connection.poll(self._timeout):
                self._end()
                raise Crashed(f"expected a result within {self._timeout:g} s, found none")
            answer, error = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            self._end()
            raise Crashed(f"the process ended with exit status {code}") from None
        if error:
            raise Crashed(error)
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def _serve(connection: Connection) -> None:
    sys.setrecursionlimit(DEEPEST)
    warnings.simplefilter("ignore")  # Pillow's, of sizes and palettes
    while True:
        try:
            function, given = connection.recv()
        except EOFError:
            return
        try:
            answer = function(*given), ""
        except Exception as error:
            answer = None, f"{type(error).__name__}: {error}"
        try:
            connection.send(answer)
        except Exception as error:  # the result cannot be pickled
            connection.send((None, f"{type(error).__name__}: {error}"))
