"""Read what C code and child processes write past Python's streams, in the log files that Ray gives a worker.

The descriptors 1 and 2 of a worker, and of a process forked for it, are files of Ray. In another process, whose output
is a terminal or a pipe, there is nothing to read.
"""

import contextlib
import ctypes
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

_LOG = re.compile(r"worker-[^/]+\.(out|err)$")
_MARKS = (":job_id:", ":actor_name:", ":task_name:", ":actor_repr:")  # Ray's, for its own reader of these files
PIECE_BYTES = 2**20


class RawOutput:
    """Reads what other code adds to a log file that one of this process's output descriptors writes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""  # text without a line end

    def skip(self) -> None:
        """Leave out all lines that the file has so far."""
        self._rest = b""
        self._file.seek(0, os.SEEK_END)

    def lines(self, printed: Counter[str], is_last: bool) -> Iterator[str]:
        """Yield the lines that were added to the file since the last call, without Ray's marks.

        Lines in `printed` (Python's own streams) are left out and removed there. `is_last` also yields an unended line.
        """
        while piece := self._file.read(PIECE_BYTES):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            yield from self._unknown(lines, printed)
        if is_last and self._rest:
            lines, self._rest = [self._rest], b""
            yield from self._unknown(lines, printed)

    @staticmethod
    def _unknown(lines: list[bytes], printed: Counter[str]) -> Iterator[str]:
        for line in lines:
            text = last_text(line.decode(errors="replace")).rstrip()
            if printed[text] > 0:
                printed[text] -= 1
            elif text and not text.startswith(_MARKS):
                yield text


def raw_outputs() -> list[RawOutput]:
    """Return readers of the log files to which Ray sends this process's stdout and stderr, on Linux."""
    outputs = []
    for descriptor in (1, 2):
        path = f"/proc/self/fd/{descriptor}"
        with contextlib.suppress(OSError):  # no Linux, or the file is gone
            if _LOG.search(os.readlink(path)):
                outputs.append(RawOutput(open(path, "rb", buffering=0)))  # noqa: SIM115 - closed with the process
    return outputs


def flush_c_streams() -> None:
    """Flush the output buffers of C's standard library, so that the log files have all that C code printed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def last_text(line: str) -> str:
    """Return the text of a line after its last carriage return: a progress bar overwrites its text."""
    return line.rstrip("\r").rpartition("\r")[2]
