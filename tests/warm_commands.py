"""`overnight` and `python FILE` as functions of this process, which has imported their libraries and connected to Ray.

A command has a folder, an environment, standard streams and an exit code of its own, as a process has. One runs at a
time. Ray's workers keep the session's environment, and find the modules of the command's folder through a link.

The commands of a script come from bash: on its PATH are programs that send what they are called with to this process.
"""

import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import IO, Any
from unittest import mock

from tests.conftest import COMMAND_FOLDER

Done = subprocess.CompletedProcess[str]
PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    code = server.recv(16)
sys.exit(int(code or 1))
"""


def _overnight(arguments: Sequence[str]) -> None:
    from overnight.cli.main import main

    main(list(arguments), prog_name="overnight")


def _python(arguments: Sequence[str]) -> None:
    script = Path(arguments[0]).resolve(strict=True)
    sys.argv, sys.path[:0] = list(arguments), [str(script.parent)]
    runpy.run_path(str(script), run_name="__main__")


PROGRAMS: Mapping[str, Callable[[Sequence[str]], None]] = {"overnight": _overnight, "python": _python}


def run(program: str, arguments: Sequence[str], folder: Path | str, stdin: IO[Any] | int | None = None) -> Done:
    """Return what the command printed and its exit code. Without `stdin` it reads nothing."""
    with contextlib.ExitStack() as stack:
        printed = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
        source = stack.enter_context(open(os.devnull)) if stdin is None else stdin
        streams = [stream if isinstance(stream, int) else stream.fileno() for stream in (source, *printed)]
        code = _call(program, arguments, folder, os.environ.copy(), streams)
        return subprocess.CompletedProcess([program, *arguments], code, *(_content(file) for file in printed))


def run_script(
    script: str,
    folder: Path,
    environment: Mapping[str, str],
    after: Callable[[str, Sequence[str], int], None],
) -> Done:
    """Run a script of bash, which ends at the first command that fails, and call `after` when a command has ended."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overnight-")))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(place / "socket"))
        listener.listen()
        for name in PROGRAMS:
            (place / name).write_text(PROGRAM.format(python=sys.executable, address=str(place / "socket"), name=name))
            (place / name).chmod(0o755)
        printed = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
        bash = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env={**environment, "PATH": os.pathsep.join([str(place), environment["PATH"]])},
            stdin=subprocess.DEVNULL,
            stdout=printed[0],
            stderr=printed[1],
            start_new_session=True,
        )
        stack.callback(_end, bash)
        ended = os.pidfd_open(bash.pid)
        stack.callback(os.close, ended)
        while ended not in connection.wait([listener, ended]):  # select() refuses a file number above 1023
            _answer(listener, after)
        return subprocess.CompletedProcess(bash.args, bash.wait(), *(_content(file) for file in printed))


def _answer(listener: socket.socket, after: Callable[[str, Sequence[str], int], None]) -> None:
    asking, _ = listener.accept()
    with asking, contextlib.ExitStack() as stack:
        _, streams, _, _ = socket.recv_fds(asking, 1, 3)
        for stream in streams:
            stack.callback(os.close, stream)
        program, arguments, folder, environment = json.load(asking.makefile())
        code = _call(program, arguments, folder, environment, streams)
        after(program, arguments, code)
        with contextlib.suppress(BrokenPipeError):
            asking.sendall(str(code).encode())


def _call(
    program: str, arguments: Sequence[str], folder: Path | str, environment: Mapping[str, str], streams: Sequence[int]
) -> int:
    """Return the exit code."""
    import overnight.api.local_run  # noqa: F401 - Prefect sets up its logs here, with this process's own streams

    with _as_a_process(folder, environment, streams):
        try:
            PROGRAMS[program](arguments)
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            return 1
        return 0


@contextlib.contextmanager
def _as_a_process(folder: Path | str, environment: Mapping[str, str], streams: Sequence[int]) -> Iterator[None]:
    """Have the body find its own folder, environment and streams, and undo what it changed for later commands."""
    here, path, modules = os.getcwd(), list(sys.path), set(sys.modules)
    names, before, threshold = ("argv", "stdin", "stdout", "stderr"), os.environ.copy(), gc.get_threshold()
    kept, values = [os.dup(number) for number in range(3)], [getattr(sys, name) for name in names]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    ours = [os.fdopen(number, "r" if number == 0 else "w", closefd=False) for number in range(3)]
    try:
        sys.stdin, sys.stdout, sys.stderr = ours
        _set_environment(environment)
        os.chdir(folder)
        point_command_folder(folder)
        with mock.patch("os._exit", sys.exit):
            yield
    finally:
        for stream in ours[1:]:
            stream.flush()
        for number, stream in enumerate(kept):
            os.dup2(stream, number)
            os.close(stream)
        for name, value in zip(names, values, strict=True):
            setattr(sys, name, value)
        own = (str(folder), *filter(None, set(sys.path) - set(path)))  # another command's modules have the same names
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules.get(name), "__file__", None)).startswith(own):
                sys.modules.pop(name, None)
        sys.path[:] = path
        os.chdir(here)
        _set_environment(before)
        gc.set_threshold(*threshold)
        gc.unfreeze()


def point_command_folder(folder: Path | str) -> None:
    """Have workers find the modules of a folder. There is always one: Python never looks again where it found none."""
    draft = COMMAND_FOLDER.with_name("next-folder")
    draft.symlink_to(folder)
    draft.replace(COMMAND_FOLDER)


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and of what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
