"""A process that has imported the models' libraries and forks other processes: importing PyTorch takes seconds.

Clients, which are Ray's workers, find its Unix socket in `OVERNIGHT_FORK_SERVER`; 0 starts no server. The server only
imports: threads and devices would not survive a fork. jemalloc's thread, from PyArrow's import, prepares for forks by
itself (`pthread_atfork`). `docs/decisions.md` has the figures.
"""

import contextlib
import gc
import importlib
import os
import pickle
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

# client                           fork server                     forked process
# a dot, and open descriptors  ->  accepts
# ("import", [module, ...])    ->  imports them
# ("fork", (folder, path,      ->  forks                       ->  takes folder, path, environment and output,
#   environment, target))                                          runs target(*descriptors), ends
# closes its lifeline, or dies ----------------------------------> ends immediately
#
# The lifeline is a pipe between a client and a forked process. Python's multiprocessing.forkserver works alike, but
# only for the process that started it.
ADDRESS, OFF = "OVERNIGHT_FORK_SERVER", "0"
MOST_DESCRIPTORS = 8
STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR = range(3)

_is_let_go = threading.Event()


def for_local_ray() -> contextlib.AbstractContextManager[None]:
    """Return a context that runs a fork server for the local Ray that this process starts.

    No server runs if Ray is already there or remote, or on macOS, whose frameworks do not survive a fork.
    """
    ray = sys.modules.get("ray")
    has_ray = os.environ.get("RAY_ADDRESS") or (ray and ray.is_initialized())
    if has_ray or os.environ.get(ADDRESS) == OFF or sys.platform != "linux":
        return contextlib.nullcontext()
    return started()


@contextlib.contextmanager
def started() -> Iterator[None]:
    """Run a fork server while the body runs, for this process and its children, unless a server exists."""
    if is_there():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="overnight-") as folder, contextlib.ExitStack() as stack:
        address = os.path.join(folder, "fork-server")
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "overnight.tasks.workers.fork_server", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # One thread for libraries that create a pool of them on import; a fork would lose the pool.
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C goes to the run, which ends the processes that it started
        )
        stack.enter_context(server)
        stack.callback(server.kill)  # it may be importing, and needs no cleanup
        server.stdout.readline()  # type: ignore[union-attr] # now it listens
        os.environ[ADDRESS] = address
        stack.callback(os.environ.pop, ADDRESS, None)
        yield


def is_there() -> bool:
    """Return True if this process's environment has the address of a live fork server."""
    with socket.socket(socket.AF_UNIX) as client:
        return ADDRESS in os.environ and client.connect_ex(os.environ[ADDRESS]) == 0


def preload(modules: Sequence[str]) -> None:
    """Let the fork server, if there is one, import these modules, and do not wait for it."""
    if modules and is_there():
        _send(("import", list(modules)))


def fork(
    target: Callable[..., None], descriptors: Sequence[int], is_quiet: bool, environment: Mapping[str, str]
) -> int:
    """Run `target(*descriptors)` in a forked process with this process's folder, paths and output, unless `is_quiet`.

    Return its lifeline: it ends when `target` returns, this descriptor is closed, or this process ends.
    """
    import cloudpickle

    far_end, lifeline = os.pipe()
    context = (os.getcwd(), list(sys.path), dict(environment), cloudpickle.dumps(target))
    devnull = os.open(os.devnull, os.O_WRONLY)
    output = [devnull, devnull] if is_quiet else [STANDARD_OUTPUT, STANDARD_ERROR]
    try:
        _send(("fork", context), [*output, far_end, *descriptors])
    finally:
        os.close(devnull)
        os.close(far_end)
    return lifeline


def _send(request: tuple[str, Any], descriptors: Sequence[int] = ()) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.environ[ADDRESS])
        socket.send_fds(client, [b"."], list(descriptors))
        with Connection(client.detach()) as connection:
            connection.send(request)


def main(address: str) -> None:
    """Run the fork server on the Unix socket `address`, until standard input ends, one request after another."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the forked ones
    # Python 3.12 warns of any thread, also of jemalloc's.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    gc.disable()  # imports stay; a collection in a forked process would copy their memory
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(128)
        print("listening", flush=True)
        from overnight.tasks.workers import user_output

        user_output.install()  # before it imports libraries that log
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            _, descriptors, _, _ = socket.recv_fds(client, 1, MOST_DESCRIPTORS)
            # Some clients only check that the server exists.
            with Connection(client.detach()) as connection, contextlib.suppress(EOFError, ConnectionError):
                kind, arguments = connection.recv()
                if kind == "import":
                    for module in arguments:
                        with contextlib.suppress(Exception):  # the process that needs it imports it itself
                            importlib.import_module(module)
                    gc.freeze()
                elif not os.fork():
                    listener.close()
                    connection.close()
                    _live(arguments, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def _live(context: tuple[str, list[str], dict[str, str], bytes], descriptors: list[int]) -> None:
    """Run the forked process to its end."""
    try:
        folder, path, environment, target = context
        output, errors, lifeline, *arguments = descriptors
        gc.enable()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), STANDARD_INPUT)
        os.dup2(output, STANDARD_OUTPUT)
        os.dup2(errors, STANDARD_ERROR)
        os.chdir(folder)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        random.seed()
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()
        hold(lifeline)
        pickle.loads(target)(*arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def hold(lifeline: int) -> None:
    """Let this process end when the other end of `lifeline` is closed, until `let_go`."""
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def let_go() -> None:
    """Let this process live on without the one that started it."""
    _is_let_go.set()


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # no data comes: it returns when the other end is closed
    if not _is_let_go.is_set():
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # no cleanup needed, within a second
