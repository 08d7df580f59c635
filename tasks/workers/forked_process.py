"""Make an object in a forked process. This process calls the object's methods, and answers its questions.

Ray's processes wake up a hundred times per second, and each imports its libraries itself. Heavy work therefore runs in
a process of its own. Ray sees a worker and its forked process as one, because they end together. Another process
may take the object over: the first worker of a model takes it from the task `infer`, which has tried it.
"""

import contextlib
import os
import queue
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

from overnight.tasks.errors import OvernightError
from overnight.tasks.workers import fork_server

T = TypeVar("T")

OUTPUT = (fork_server.STANDARD_OUTPUT, fork_server.STANDARD_ERROR)
RELEASE = "release"  # instead of the name of a method
SECONDS_RELEASED = 300.0  # the longest that a released process waits for its next user

_questions: list["Future[Connection]"] = []  # in a forked process: the connection to its parent
_questions_lock = threading.Lock()


class ProcessDied(Exception):
    """A forked process ended before it replied."""


class Begun:
    """A forked process that begins to make an object, the result of `make`, before a `Forked` uses it.

    The first `Forked` that gets this `Begun` uses the object, in this process or in one to which the `Begun` is sent.
    After its `release`, the next one does. The forked process ends with this process, with the process of that
    `Forked`, or when this process drops the `Begun`. If `is_quiet`, its standard streams are discarded.
    """

    def __init__(self, make: Callable[[], Any], is_quiet: bool = False) -> None:
        self.address = fork_server.beside(uuid.uuid4().hex[:12])
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()  # before any client knows the address
            lifeline = fork_server.fork(partial(_live, make, self.address), [listener.fileno()], is_quiet)
        weakref.finalize(self, _end, lifeline, self.address)

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}


class Forked:
    """An object in a process of its own, which ends with this process.

    `make` is a picklable function that returns the object there, or a `Begun` that is already making it. If that
    process calls `ask`, a thread here calls `answer` with the same arguments, and sends back the result. If
    `takes_output`, its standard streams become those of this process. The constructor raises the errors of `make`, and
    `ProcessDied` if that process ends first, or has another user.
    """

    def __init__(self, make: Callable[[], Any] | Begun, answer: Callable[..., Any], takes_output: bool = False) -> None:
        self._begun = make if isinstance(make, Begun) else Begun(make)
        answers, asking = socket.socketpair()
        try:
            self._calls = Client(self._begun.address)
            with asking, socket.socket(fileno=os.dup(self._calls.fileno())) as calls:
                socket.send_fds(calls, [b"."], [asking.fileno(), *(OUTPUT if takes_output else ())])
        except (FileNotFoundError, ConnectionError) as error:
            answers.close()
            raise ProcessDied from error
        threading.Thread(target=_answer, args=(Connection(answers.detach()), answer), daemon=True).start()
        list(self._replies())

    def release(self) -> Begun:
        """Give up the object without ending its process, and return what the next `Forked` uses it by.

        It has to be used within some minutes.
        """
        list(self.call(RELEASE))
        self._calls.close()
        return self._begun

    def call(self, method: str, *arguments: Any) -> Iterator[Any]:
        """Call a method of the object with these arguments. Yield the values that it yields, or its return value.

        Raise the method's errors, and `ProcessDied` if the forked process ends first.
        """
        try:
            _send(self._calls, (method, arguments))
        except ConnectionError as error:
            raise ProcessDied from error
        replies = self._replies()
        try:
            for reply in replies:  # noqa: UP028 - `yield from` would close the replies with this generator
                yield reply
        finally:
            for _ in replies:  # replies without a receiver do not belong to the next call
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
    """Run `work` in a forked process, which ends afterwards, and return its result.

    If that process calls `ask`, a thread here calls `answer` with the same arguments, and sends back the result. Raise
    the errors of `work`, and `ProcessDied` if the process ends first.
    """
    [found] = Forked(partial(_itself, work), answer).call("__call__")
    return cast(T, found)


def _itself(thing: T) -> T:
    return thing


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """End this process if the body raises `ProcessDied`. Ray then treats it as a worker that died."""
    try:
        yield
    except ProcessDied:
        os._exit(1)


def is_forked() -> bool:
    """Return True if this process was forked by the fork server to work for another process, its parent."""
    return bool(_questions)


def ask(*question: Any) -> Any:
    """Call the parent's function `answer` from a forked process, and return its result. The arguments are `question`.

    The parent is the process whose `Forked` uses this one; wait until it exists. Raise the errors of `answer`.
    """
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


class _Users:
    """In a forked process: its users, one after another. The process ends with a user that did not release it."""

    def __init__(self, address: str, listening: int) -> None:
        self._address, self._listener = address, socket.socket(fileno=listening)
        self._calls: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._is_released = False
        _questions.append(Future())
        threading.Thread(target=self._serve, daemon=True).start()

    def next(self) -> Connection:
        """Return the connection for the calls of the next user; wait for it."""
        return self._calls.get()

    def release(self) -> None:
        """Let another user connect after the present one."""
        with _questions_lock:
            _questions[0].result().close()
            _questions[0] = Future()
        os.unlink(self._address)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._address)
        self._listener.listen()
        self._listener.settimeout(SECONDS_RELEASED)
        self._is_released = True

    def _serve(self) -> None:
        while True:
            try:
                user, _ = self._listener.accept()
            except TimeoutError:
                os._exit(0)
            self._listener.close()  # later clients are refused
            _, (asking, *output), _, _ = socket.recv_fds(user, 1, 1 + len(OUTPUT))
            for descriptor, place in zip(output, OUTPUT, strict=False):
                os.dup2(descriptor, place)
                os.close(descriptor)
            self._is_released = False
            _questions[0].set_result(Connection(asking))
            calls = select.poll()
            calls.register(user, 0)  # poll reports a hang-up without a mask
            self._calls.put(Connection(os.dup(user.fileno())))
            calls.poll()
            if not self._is_released:
                os._exit(0)
            user.close()


def _live(make: Callable[[], Any], address: str, listening: int) -> None:
    """Run the forked process."""
    users = _Users(address, listening)
    made: Any = None
    failure = None
    try:
        made = make()
    except Exception as error:
        failure = error
    while True:
        connection = users.next()
        with contextlib.suppress(EOFError, ConnectionError):
            if failure:
                _send(connection, ("raise", _sendable(failure)))
                return
            _send(connection, ("end", None))
            while True:
                method, arguments = connection.recv()
                if method == RELEASE:
                    users.release()
                    _send(connection, ("end", None))
                else:
                    _reply(connection, getattr(made, method), arguments)
        connection.close()


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
    """Return the error, or one with the same message if it cannot be pickled. Its traceback goes to the worker's log.

    An Overnight error needs no traceback.
    """
    if not isinstance(error, OvernightError):
        traceback.print_exception(error)
    from overnight.tasks.workers.pickling import is_picklable

    return error if is_picklable(error) else RuntimeError(f"{type(error).__name__}: {error}")


def _send(connection: Connection, message: Any) -> None:
    from overnight.tasks.workers.pickling import pickled  # imports Ray, which most processes do not need

    connection.send_bytes(pickled(message))
