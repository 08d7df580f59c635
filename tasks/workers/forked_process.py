"""An object in a process forked of the fork server: its methods are called from here, its questions answered here.

Ray's processes wake up a hundred times a second, and each imports what it needs by itself. Heavy work is therefore done
in a process of its own. That of a worker is one with it to Ray: they end together.
"""

import contextlib
import io
import os
import pickle
import select
import socket
import threading
import traceback
import uuid
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Client, Connection
from typing import Any, TypeVar, cast

import pyarrow as pa
from ray import cloudpickle

from overnight.tasks.errors import OvernightError
from overnight.tasks.workers import fork_server

T = TypeVar("T")

_questions: list["Future[Connection]"] = []  # of a forked process: the one to those that it works for
_questions_lock = threading.Lock()


class ProcessDied(Exception):
    """A forked process ended while something was expected of it."""


class Begun:
    """A process that makes the object `make` returns, for the first who calls it: here, or where this is sent.

    It ends with this process, with the last reference to this here, or with him who calls it. is_quiet: what it writes
    to its standard streams goes nowhere.
    """

    def __init__(self, make: Callable[[], Any], is_quiet: bool = False) -> None:
        self.address = fork_server.beside(uuid.uuid4().hex[:12])
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()  # before anybody hears of it
            lifeline = fork_server.fork(partial(_live, make), [listener.fileno()], is_quiet)
        weakref.finalize(self, _end, lifeline, self.address)

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}


class Forked:
    """What `make` returns, or what has begun to be made, in a process of its own that ends with this one.

    answer: called from a thread here with what `ask` there is called with. Raises as `make`, and `ProcessDied`.
    """

    def __init__(self, make: Callable[[], Any] | Begun, answer: Callable[..., Any]) -> None:
        self._begun = make if isinstance(make, Begun) else Begun(make)
        try:
            self._calls, answers = Client(self._begun.address), Client(self._begun.address)
        except (FileNotFoundError, ConnectionError) as error:
            raise ProcessDied from error
        threading.Thread(target=_answer, args=(answers, answer), daemon=True).start()
        list(self._replies())

    def call(self, method: str, *arguments: Any) -> Iterator[Any]:
        """What the method yields, or the one thing that it returns. Raises what it raises, and `ProcessDied`."""
        try:
            _send(self._calls, (method, arguments))
        except ConnectionError as error:
            raise ProcessDied from error
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
            except (EOFError, ConnectionError) as error:
                raise ProcessDied from error
            if kind == "end":
                return
            if kind == "raise":
                raise value
            yield value


def in_process_of_its_own(work: Callable[[], T], answer: Callable[..., Any]) -> T:
    """What `work` returns, in a forked process that ends with it. Raises what it raises, and `ProcessDied`."""
    [found] = Forked(partial(_itself, work), answer).call("__call__")
    return cast(T, found)


def _itself(thing: T) -> T:
    return thing


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """Ends this process where a forked one does that it needs: as if this one had died of it."""
    try:
        yield
    except ProcessDied:
        os._exit(1)


def is_forked() -> bool:
    """Whether this process works for another."""
    return bool(_questions)


def ask(*question: Any) -> Any:
    """What the process that this one works for answers, once there is one. Raises what answering raises."""
    with _questions_lock:
        questions = _questions[0].result()
        _send(questions, question)
        kind, value = questions.recv()
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


def _end(lifeline: int, address: str) -> None:
    os.close(lifeline)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)


def _live(make: Callable[[], Any], listening: int) -> None:
    """The forked process."""
    calls: Future[Connection] = Future()
    questions: Future[Connection] = Future()
    _questions.append(questions)
    threading.Thread(target=_serve_the_first, args=(listening, calls, questions), daemon=True).start()
    made: Any = None
    failure = None
    try:
        made = make()
    except Exception as error:
        failure = error
    connection = calls.result()
    with contextlib.suppress(EOFError, ConnectionError):
        if failure:
            _send(connection, ("raise", _sendable(failure)))
            return
        _send(connection, ("end", None))
        while True:
            method, arguments = connection.recv()
            _reply(connection, getattr(made, method), arguments)


def _serve_the_first(listening: int, *connections: "Future[Connection]") -> None:
    """Takes the connections of whoever calls first, and ends this process with him, whatever it is doing."""
    with socket.socket(fileno=listening) as listener:
        for connection in connections:
            connection.set_result(Connection(listener.accept()[0].detach()))
    caller = select.poll()
    caller.register(connections[0].result(), 0)  # that it was hung up is told without being asked for
    caller.poll()
    os._exit(0)


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
    """The error, or where it cannot travel one that says the same; its traceback goes to the worker's log.

    An error of ours says all that there is to say.
    """
    if not isinstance(error, OvernightError):
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
