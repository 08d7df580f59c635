"""A server that a worker starts on its own machine, and that ends with the worker, however the worker ends."""

import collections
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LINES_TOLD = 12
ERROR = re.compile(r"(^|\] )[\w.]*(Error|Exception): ")  # at a line's start, or after a log prefix
SECONDS_BETWEEN_LOOKS = 0.3


class ChildServer:
    """A server process that runs `command`, with a free port in place of `{port}`. Its output goes to a file.

    `environment` has all of its environment variables. The server ends when this process ends.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.port = _free_port()
        self._log = tempfile.NamedTemporaryFile(prefix="overnight-server-", suffix=".log")  # noqa: SIM115 - kept open
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", str(Path(__file__).with_name("kill_with_parent.py"))),
                *(part.replace("{port}", str(self.port)) for part in command),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environment),
        )

    def wait(self, path: str, seconds: float) -> str:
        """Wait until the server answers a request for `path`, such as `/health`, with status 200; at most `seconds`.

        Return an empty text on success, otherwise the problem, with the end of the server's output.
        """
        import httpx

        deadline = time.monotonic() + seconds
        with httpx.Client(trust_env=False, timeout=10) as client:
            while time.monotonic() < deadline:
                if ended := self.ended():
                    return ended
                try:
                    if client.get(f"http://127.0.0.1:{self.port}{path}").status_code == 200:
                        return ""
                except httpx.TransportError:
                    pass
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return f"it did not answer within {seconds:g} s: {self._told()}"

    def ended(self) -> str:
        """Return how the server ended by itself, with the end of its output; an empty text while it runs."""
        code = self._process.poll()
        return "" if code is None else f"it ended with code {code}: {self._told()}"

    def end(self) -> None:
        """End the server immediately."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def _told(self) -> str:
        """Return the first error in the server's output, which caused the later ones, and the end of the output."""
        with open(self._log.name, errors="replace") as lines:
            first = next(filter(ERROR.search, lines), "")
            lines.seek(0)
            end = collections.deque(lines, LINES_TOLD)
        return "".join(end if first in end else [first, *end]).strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
