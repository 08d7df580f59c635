"""An object in a process forked of the fork server: its methods are called from here, its questions answered here.

Ray's processes wake up a hundred times a second, and each imports what it needs by itself. The heavy work of a worker
is therefore done in a process of its own, which to Ray is one with the worker: they end together.
"""

import contextlib
import io
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
from ray import cloudpickle

from tasks.fork_server import fork

_questions: list[Connection] = []  # of a forked process: the one to those that it works for
_questions_lock = threading.Lock()


class Forked:
    """What `make` returns, in a process of its own that ends with this one. Raises what `make` raises.

    answer: called from a thread here with what `ask` is called with there.
    """

    def __init__(self, make: Callable[[], Any], answer: Callable[..., Any]) -> None:
        self._calls, calls = Pipe()
        answers, questions = Pipe()
        self._lifeline = fork(partial(_live, make), [calls.fileno(), questions.fileno()])
        calls.close()
        questions.close()
        threading.Thread(target=_answer, args=(answers, answer), daemon=True).start()
        list(self._replies())

    def call(self, method: str, *arguments: Any) -> Iterator[Any]:
        """What the method yields, or the one thing that it returns. Raises what it raises."""
        _send(self._calls, (method, arguments))
        replies = self._replies()
        try:
            for reply in replies:  # noqa: UP028 - which would close them with this generator
                yield reply
        finally:
            for _ in replies:  # what nobody waited for is not the next call's
                pass

    def _replies(self) -> Iterator[Any]:
        while True:
            try:
                kind, value = self._calls.recv()
            except (EOFError, ConnectionError):
                os._exit(1)  # as if this process had died of it
            if kind == "end":
                return
            if kind == "raise":
                raise value
            yield value


def is_forked() -> bool:
    """Whether this process works for another."""
    return bool(_questions)


def ask(*question: Any) -> Any:
    """What the process that this one works for answers. Raises what answering raises."""
    with _questions_lock:
        _send(_questions[0], question)
        kind, value = _questions[0].recv()
    if kind == "raise":
        raise value
    return value


def _answer(questions: Connection, answer: Callable[..., Any]) -> None:
    while True:
        try:
            question = questions.recv()
        except (EOFError, ConnectionError):
            return
        try:
            reply = ("return", answer(*question))
        except Exception as error:
            reply = ("raise", _sendable(error))
        _send(questions, reply)


def _live(make: Callable[[], Any], calls: int, questions: int) -> None:
    """The forked process."""
    _questions.append(Connection(questions))
    connection = Connection(calls)
    try:
        made = make()
    except Exception as error:
        _send(connection, ("raise", _sendable(error)))
        return
    _send(connection, ("end", None))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            method, arguments = connection.recv()
            _reply(connection, getattr(made, method), arguments)


def _reply(connection: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        found = work(*arguments)
        for value in found if isinstance(found, Iterator) else (found,):
            _send(connection, ("value", value))
    except Exception as error:
        _send(connection, ("raise", _sendable(error)))
    else:
        _send(connection, ("end", None))


def _sendable(error: Exception) -> Exception:
    """The error, or where it cannot travel one that says the same; its traceback goes to the worker's log."""
    traceback.print_exception(error)
    try:
        pickle.loads(cloudpickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


class _Pickler(cloudpickle.Pickler):
    """Takes of a table its own rows alone: pickle takes the whole of the buffers that a slice lies in."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, pa.Table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, thing.schema) as stream:
                stream.write_table(thing)
            return _table, (sink.getvalue().to_pybytes(),)
        return super().reducer_override(thing)


def _table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _send(connection: Connection, message: Any) -> None:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(message)
    connection.send_bytes(buffer.getbuffer())
