"""A server that a worker starts on its own machine, and that ends with the worker, however the worker ends.

This file is also the script that runs the server, in a process group of its own, with a pipe as
standard input. The pipe closes when the worker ends, even after a SIGKILL.
"""

import collections
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

LINES_IN_MESSAGE = 12
ERROR = re.compile(r"(^|\] )[\w.]*(Error|Exception): ")  # at a line's start, or after a log prefix
SECONDS_BETWEEN_LOOKS = 0.3


class ChildServer:
    """A server process that runs `command`, with a free port in place of `{port}`. Its output goes to a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._log = tempfile.NamedTemporaryFile(prefix="overnight-server-", suffix=".log")  # noqa: SIM115 - kept open
        arguments = [part.replace("{port}", str(self.port)) for part in command]
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environment),
        )

    def wait(self, path: str, seconds: float) -> str:
        """Wait until the server answers a request for `path`. Return the problem; an empty text for none."""
        import httpx

        deadline = time.monotonic() + seconds
        with httpx.Client(trust_env=False, timeout=10) as client:
            while time.monotonic() < deadline:
                if problem := self.ended():
                    return problem
                try:
                    if client.get(f"http://127.0.0.1:{self.port}{path}").status_code == 200:
                        return ""
                except httpx.TransportError:
                    pass
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return f"it did not answer within {seconds:g} s: {self._output()}"

    def ended(self) -> str:
        """Return how the server ended by itself, with the end of its output; an empty text while it runs."""
        code = self._process.poll()
        return "" if code is None else f"it ended with code {code}: {self._output()}"

    def end(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def _output(self) -> str:
        """Return the first error in the server's output, which caused the later ones, and the end of the output."""
        with open(self._log.name, errors="replace") as lines:
            first = next(filter(ERROR.search, lines), "")
            lines.seek(0)
            end = collections.deque(lines, LINES_IN_MESSAGE)
        return "".join(end if first in end else [first, *end]).strip()


def run_until_parent_ends(command: list[str]) -> int:
    """Run `command` and return its exit code. Kill this process group if standard input closes before that.

    Ray kills the children of a worker that ends. So a process that is not a child kills the rest.
    """
    if not (watcher := os.fork()):
        os.read(sys.stdin.fileno(), 1)
        os.killpg(0, signal.SIGKILL)
    try:
        return subprocess.call(command, stdin=subprocess.DEVNULL)
    finally:
        os.kill(watcher, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(run_until_parent_ends(sys.argv[1:]))
