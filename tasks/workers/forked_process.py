"""Make an object in a process of its own. This process calls the object's methods, and answers its questions.

Ray's processes wake up a hundred times per second, and have threads that user code must not meet. A model therefore
has a process of its own, and ends with Ray's worker. The first worker of a model takes the process from the trial.
"""

import contextlib
import os
import pickle
import queue
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Client, Connection
from typing import Any, TypeVar, cast

from overnight.tasks.errors import OvernightError
from overnight.tasks.workers import fork_server

T = TypeVar("T")

# starter                               process of its own
# starts it, and holds its lifeline ->  makes the object
# user: connects                    ->  answers "end", or the error of `make`
# (method, arguments)               ->  ("value", ...) for each value, then "end", or ("raise", error)
#                                   <-  `ask`: a question, on a connection of its own
# "release"                         ->  waits `SECONDS_RELEASED` for the next user; the lifeline no longer counts
# closes the connection, or dies    ->  ends
OUTPUT = (fork_server.STANDARD_OUTPUT, fork_server.STANDARD_ERROR)
RELEASE = "release"  # instead of the name of a method
SECONDS_RELEASED = 60.0  # the longest that a released process waits for its next user
MOST_CALLS = 200  # that run at the same time: a message takes 253 descriptors, one for each
START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); import {0} as module; module.main()"

_questions: list["Future[Connection]"] = []  # in a process of its own: the connection to its user
_questions_lock = threading.Lock()


class ProcessDied(Exception):
    """A process of its own ended before it replied."""


class Begun:
    """A process of its own that begins to make an object, the result of the picklable function `make`.

    The first `Forked` that gets this `Begun` uses the object, also in another process; after its `release` the next
    one. Until then, the process also ends with this process, or when this process drops the `Begun`.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        is_quiet: bool = False,
        forks: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Begin to make the object. `is_quiet`: discard its output. `forks`: the fork server may fork its process."""
        self.place: Any = None  # where it runs, for those who choose a process by it
        folder = tempfile.mkdtemp(prefix="overnight-")  # with mode 0700
        self.address = os.path.join(folder, "calls")
        start = fork_server.fork if forks and fork_server.is_there() else _spawn
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()  # before any client knows the address
            target = partial(_live, make, self.address)
            lifeline = start(target, [listener.fileno()], is_quiet, {**os.environ, **(environment or {})})
        self._finalizer: Any = weakref.finalize(self, _end, lifeline, folder)

    def released(self) -> "Begun":
        """Return this `Begun` for the next user. The process no longer ends with this one."""
        if self._finalizer:
            self._finalizer.detach()
        return self

    def end(self) -> None:
        """End the process if it waits for its next user."""
        with contextlib.suppress(OSError):
            Client(self.address).close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_finalizer": None}


class Forked:
    """An object in a process of its own, which ends with this process.

    If that process calls `ask`, a thread here calls `answer` with the same arguments, and sends back the result. Up to
    `calls_at_once` threads may call it.
    """

    def __init__(
        self,
        make: Callable[[], Any] | Begun,
        answer: Callable[..., Any],
        takes_output: bool = False,
        calls_at_once: int = 1,
    ) -> None:
        """Raise the errors of `make`, and `ProcessDied` if that process ends first, or has another user.

        If `takes_output`, its standard streams become those of this process.
        """
        self._begun = make if isinstance(make, Begun) else Begun(make)
        pairs = [socket.socketpair() for _ in range(min(calls_at_once, MOST_CALLS))]  # the first is for questions
        questions, *connections = [Connection(near.detach()) for near, _ in pairs]
        descriptors = [far.fileno() for _, far in pairs]
        if takes_output:
            descriptors += OUTPUT
        try:
            calls = Client(self._begun.address)
            with socket.socket(fileno=os.dup(calls.fileno())) as channel:
                socket.send_fds(channel, [bytes([len(pairs)])], descriptors)
        except (FileNotFoundError, ConnectionError) as error:
            raise ProcessDied from error
        finally:
            for _, far in pairs:
                far.close()
        threading.Thread(target=_answer, args=(questions, answer), daemon=True).start()
        list(_replies(calls))
        self._free: queue.LifoQueue[Connection] = queue.LifoQueue()
        for connection in (*connections, calls):  # a call alone has the main thread there
            self._free.put(connection)

    def release(self) -> Begun:
        """Return the object for the next `Forked`, within a minute. No call may be under way."""
        connections = [self._free.get_nowait() for _ in range(self._free.qsize())]
        _send(connections[0], (RELEASE, ()))
        list(_replies(connections[0]))
        for connection in connections:
            connection.close()
        return self._begun.released()

    def call(self, method: str, *arguments: Any) -> Iterator[Any]:
        """Call a method of the object. Yield the values that it yields, or its return value, and raise its errors."""
        connection = self._free.get()
        replies = _replies(connection)
        try:
            _send(connection, (method, arguments))
            for reply in replies:  # noqa: UP028 - `yield from` would close the replies with this generator
                yield reply
        except ConnectionError as error:
            raise ProcessDied from error
        except GeneratorExit:
            for _ in replies:  # replies without a receiver do not belong to the next call
                pass
            raise
        finally:
            self._free.put(connection)


def _replies(calls: Connection) -> Iterator[Any]:
    while True:
        try:
            kind, value = _receive(calls)
        except (EOFError, ConnectionError) as error:
            raise ProcessDied from error
        if kind == "end":
            return
        if kind == "raise":
            raise value
        yield value


def _spawn(target: Callable[..., None], descriptors: list[int], is_quiet: bool, environment: Mapping[str, str]) -> int:
    """Do what `fork_server.fork` does, by a new process of Python."""
    import cloudpickle

    output = subprocess.DEVNULL if is_quiet else None
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START.format(__name__), *map(str, descriptors)],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=descriptors,
        env=environment,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, daemon=True).start()
    assert process.stdin
    with process.stdin as stdin:
        stdin.write(pickle.dumps(sys.path) + cloudpickle.dumps(target))
        stdin.flush()
        return os.dup(stdin.fileno())


def main() -> None:
    """Run a process that `_spawn` started."""
    if os.fork():  # an orphan: Ray would end a child with the worker that started it, although another one uses it
        os._exit(0)
    try:
        from overnight.tasks.workers import user_output

        user_output.install()  # before the import of libraries that log
        target = pickle.load(sys.stdin.buffer)
        fork_server.hold(os.dup(fork_server.STANDARD_INPUT))
        os.dup2(os.open(os.devnull, os.O_RDONLY), fork_server.STANDARD_INPUT)
        target(*map(int, sys.argv[1:]))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def in_process_of_its_own(work: Callable[[], T], answer: Callable[..., Any]) -> T:
    """Run `work` in a process of its own, see `Forked`, and return its result."""
    [result] = Forked(partial(_same, work), answer).call("__call__")
    return cast(T, result)


def _same(thing: T) -> T:
    return thing


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """End this process if the body raises `ProcessDied`. Ray then treats it as a worker that died."""
    try:
        yield
    except ProcessDied:
        os._exit(1)


def is_forked() -> bool:
    """Return True if this process is a process of its own, which works for another one."""
    return bool(_questions)


def ask(*question: Any) -> Any:
    """Call the user's function `answer` with these arguments, and return its result. Wait until there is a user."""
    with _questions_lock:
        questions = _questions[0].result()
        _send(questions, question)
        kind, value = _receive(questions)
    if kind == "raise":
        raise value
    return value


def _answer(questions: Connection, answer: Callable[..., Any]) -> None:
    while True:
        try:
            question = _receive(questions)
        except (EOFError, ConnectionError):
            return
        try:
            reply = ("return", answer(*question))
        except Exception as error:
            reply = ("raise", _sendable(error))
        _send(questions, reply)


def _end(lifeline: int, folder: str) -> None:
    os.close(lifeline)
    shutil.rmtree(folder, ignore_errors=True)


class _Users:
    """In a process of its own: its users, one after another. It ends with a user that did not release it."""

    def __init__(self, address: str, listening: int) -> None:
        self._address, self._listener = address, socket.socket(fileno=listening)
        self._calls: queue.SimpleQueue[list[Connection]] = queue.SimpleQueue()
        self._is_released = self._was_released = False
        _questions.append(Future())
        threading.Thread(target=self._serve, daemon=True).start()

    def next(self) -> list[Connection]:
        """Return the connections for the calls of the next user; wait for it."""
        return self._calls.get()

    def release(self) -> None:
        """Let another user connect after the present one. The process that started this one may end from now on."""
        with _questions_lock:
            _questions[0].result().close()
            _questions[0] = Future()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._address)
        self._listener.listen()
        self._listener.settimeout(SECONDS_RELEASED)
        fork_server.let_go()
        self._is_released = self._was_released = True

    def end(self) -> None:
        """End this process."""
        if self._was_released:  # otherwise the starter removes it
            shutil.rmtree(os.path.dirname(self._address), ignore_errors=True)
        os._exit(0)

    def _serve(self) -> None:
        while True:
            try:
                user, _ = self._listener.accept()
            except TimeoutError:
                self.end()
            self._listener.close()  # later clients are refused
            os.unlink(self._address)
            count, descriptors, _, _ = socket.recv_fds(user, 1, MOST_CALLS + len(OUTPUT))
            if not count:
                self.end()
            questions, *connections = [Connection(descriptor) for descriptor in descriptors[: count[0]]]
            for descriptor, stream in zip(descriptors[count[0] :], OUTPUT, strict=False):
                os.dup2(descriptor, stream)
                os.close(descriptor)
            self._is_released = False
            _questions[0].set_result(questions)
            hang_up = select.poll()
            hang_up.register(user, 0)  # poll reports a hang-up without a mask
            self._calls.put([Connection(os.dup(user.fileno())), *connections])
            hang_up.poll()
            if not self._is_released:
                self.end()
            user.close()


def _live(make: Callable[[], Any], address: str, listening: int) -> None:
    users = _Users(address, listening)
    thing: Any = None
    failure = None
    try:
        thing = make()
    except Exception as error:
        failure = error
    while True:
        calls, *connections = users.next()
        with contextlib.suppress(EOFError, ConnectionError):
            if failure:
                _send(calls, ("raise", _sendable(failure)))
                return
            _send(calls, ("end", None))
            for connection in connections:
                threading.Thread(target=_serve_calls, args=(connection, thing, users), daemon=True).start()
        _serve_calls(calls, thing, users)


def _serve_calls(calls: Connection, thing: Any, users: _Users) -> None:
    """Answer the calls of one thread of a user, until it closes the connection."""
    with calls, contextlib.suppress(EOFError, ConnectionError):
        while True:
            method, arguments = _receive(calls)
            if method == RELEASE:
                users.release()
                _send(calls, ("end", None))
            else:
                _reply(calls, getattr(thing, method), arguments)


def _reply(connection: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = work(*arguments)
        for value in result if isinstance(result, Iterator) else (result,):
            _send(connection, ("value", value))
    except Exception as error:
        _send(connection, ("raise", _sendable(error)))
    else:
        _send(connection, ("end", None))


def _sendable(error: Exception) -> Exception:
    """Return the error, or one with its message if it cannot be pickled. Its traceback goes to the worker's log."""
    if not isinstance(error, OvernightError):
        traceback.print_exception(error)
    from overnight.tasks.workers.pickling import is_picklable

    return error if is_picklable(error) else RuntimeError(f"{type(error).__name__}: {error}")


def _send(connection: Connection, message: Any) -> None:
    from overnight.tasks.workers.pickling import send  # imports PyArrow, which some processes do not need

    send(connection, message)


def _receive(connection: Connection) -> Any:
    from overnight.tasks.workers.pickling import receive

    return receive(connection)
