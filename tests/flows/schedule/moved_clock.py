"""A clock of the day that a test moves, for the processes that it starts."""

import os
import shutil
import struct
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


class MovedClock:
    """`environment` moves the clock of a process and its children. Skip the test without a C compiler, or on macOS."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if not compiler or os.uname().sysname != "Linux":
            pytest.skip("needs Linux and a C compiler (cc): it preloads a clock into processes")
        library, self._file = folder / "moved_clock.so", folder / "seconds"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
        self._file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(self._file)}

    def move(self, moment: datetime) -> None:
        """Let the clock be at a moment now, and go on from it."""
        with self._file.open("r+b") as file:  # in one write: processes have the file in their memory
            file.write(struct.pack("q", round(moment.timestamp() - time.time())))

    def now(self) -> datetime:
        [seconds] = struct.unpack("q", self._file.read_bytes())
        return datetime.fromtimestamp(time.time() + seconds, UTC)
