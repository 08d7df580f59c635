"""A process that has imported what models need, and of which others are forked: importing PyTorch takes seconds.

`python -m overnight.tasks.workers.fork_server ADDRESS` listens there, on a Unix socket, until its standard input ends.
Those who find the address in `OVERNIGHT_FORK_SERVER` have it import modules, or fork a process that does something.
Nothing but imports happens in the server itself: threads and devices would not survive a fork. With
`OVERNIGHT_FORK_SERVER=0` there is none, and every process of Ray's imports for itself, as on a cluster.

    who asks                         fork server                     forked process
    a dot, and open descriptors  ->  accepts
    ("import", [module, ...])    ->  imports them
    ("fork", (folder, path,      ->  forks                       ->  takes folder, path, environment and output,
      environment, target))                                          runs target(*descriptors), ends
    closes its lifeline, or dies ----------------------------------> ends at once

It stays because 100 photos take 1.8 times the seconds without it (18.7 s against 10.6 of commit 98cb5d1, medians of
three in turns on two cores), and 1.9 times the CPU.

Python's multiprocessing.forkserver works alike, but only for the process that started it; here Ray's workers ask.
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
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

ADDRESS, OFF = "OVERNIGHT_FORK_SERVER", "0"
OWN_IMPORTS = (
    "overnight.tasks.infer.autotune.trial",
    "overnight.tasks.ingest.reading.read_units",
    "overnight.tasks.preprocess.run_steps",
)
MOST_DESCRIPTORS = 8
STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR = range(3)


def for_local_ray() -> contextlib.AbstractContextManager[None]:
    """A server for a Ray that is to start in this process, whose workers inherit where it is.

    Not on macOS, whose frameworks do not survive a fork. The earlier it begins, the more it has imported when asked.
    """
    ray = sys.modules.get("ray")
    is_ours = not (os.environ.get("RAY_ADDRESS") or (ray and ray.is_initialized()))
    is_wanted = os.environ.get(ADDRESS) != OFF
    return started() if is_ours and is_wanted and sys.platform == "linux" else contextlib.nullcontext()


@contextlib.contextmanager
def started() -> Iterator[None]:
    """A server while the body runs, for this process and those that inherit its environment from now on.

    None where there is one already, whose starter keeps it. It begins with what every worker of ours imports.
    """
    if is_there():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="overnight-") as folder, contextlib.ExitStack() as stack:
        address = os.path.join(folder, "fork-server")
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "overnight.tasks.workers.fork_server", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # One thread for libraries that make a pool of them when they are imported; a fork would lose it.
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is the run's, which ends what it started
        )
        stack.enter_context(server)
        stack.callback(server.kill)  # it may be importing, and has nothing to tidy up
        server.stdout.readline()  # type: ignore[union-attr] # it listens
        os.environ[ADDRESS] = address
        stack.callback(os.environ.pop, ADDRESS, None)
        preload(OWN_IMPORTS)
        yield


def is_there() -> bool:
    """Whether this process has a server to ask, and it lives."""
    with socket.socket(socket.AF_UNIX) as asking:
        return ADDRESS in os.environ and asking.connect_ex(os.environ[ADDRESS]) == 0


def beside(name: str) -> str:
    """A path of that name in the server's folder, which goes with it."""
    return os.path.join(os.path.dirname(os.environ[ADDRESS]), name)


def import_own() -> None:
    """Imports into this process what every worker of ours needs."""
    for module in OWN_IMPORTS:
        importlib.import_module(module)


def preload(modules: Sequence[str]) -> None:
    """Has the server import these, if there is one, without waiting for it.

    What cannot be imported is left to those who need it.
    """
    if modules and is_there():
        _ask(("import", list(modules)))


def fork(target: Callable[..., None], descriptors: Sequence[int], is_quiet: bool = False) -> int:
    """Runs `target(*descriptors)` in a process forked of the server, with what it has been asked to import so far.

    That process has this one's folder, paths, environment and output. It ends after `target`, or when the returned
    descriptor is closed, as at the end of this process. Open descriptors of this process are given to it as its own.
    is_quiet: its output goes nowhere, for this process's is a person's terminal.
    """
    from ray import cloudpickle

    lifeline, kept = os.pipe()
    context = (os.getcwd(), list(sys.path), dict(os.environ), cloudpickle.dumps(target))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    output = [nowhere, nowhere] if is_quiet else [STANDARD_OUTPUT, STANDARD_ERROR]
    try:
        _ask(("fork", context), [*output, lifeline, *descriptors])
    finally:
        os.close(nowhere)
        os.close(lifeline)
    return kept


def _ask(request: tuple[str, Any], descriptors: Sequence[int] = ()) -> None:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(os.environ[ADDRESS])
        socket.send_fds(asking, [b"."], list(descriptors))
        with Connection(asking.detach()) as connection:
            connection.send(request)


def main(address: str) -> None:
    """Serves one after another, so that what is forked has all that was to be imported before."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what was forked
    gc.disable()  # what is imported stays; the forked ones, too, are not to look through it, which would copy it
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(128)
        print("listening", flush=True)
        from overnight.tasks.workers import user_output

        user_output.install()  # before it imports libraries that log
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            asking, _ = listener.accept()
            _, descriptors, _, _ = socket.recv_fds(asking, 1, MOST_DESCRIPTORS)
            # Some only ask whether it is there.
            with Connection(asking.detach()) as connection, contextlib.suppress(EOFError, ConnectionError):
                kind, wanted = connection.recv()
                if kind == "import":
                    _import(wanted)
                elif not os.fork():
                    listener.close()
                    connection.close()
                    _live(*wanted, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def _import(modules: list[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()


def _live(
    folder: str,
    path: list[str],
    environment: dict[str, str],
    target: bytes,
    output: int,
    errors: int,
    lifeline: int,
    *descriptors: int,
) -> None:
    """The forked process, to its end."""
    try:
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
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        pickle.loads(target)(*descriptors)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # nobody writes: it ends when its other end is closed
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # nothing to tidy up, in a second of it
