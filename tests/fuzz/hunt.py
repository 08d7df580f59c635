"""Runs a target on damaged files in a process of its own, with a limit of time and memory for each file.

    python -m tests.fuzz.hunt                                    all targets, 500 files each
    python -m tests.fuzz.hunt csv --count 10000 --seed 3         one of them
    python -m tests.fuzz.hunt csv --seed 3 --first 4711 --count 1 --keep FILE

The last one replays one file, as a failure says, and keeps its bytes.
"""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from tests.fuzz.targets import makers

SECONDS = 5.0  # for a file
BYTES = 512 * 2**20  # for a file, beyond what the process holds already
START_SECONDS = 120.0  # for the imports, and the corpus
LOOKS_A_SECOND = 20
MOST_FAULTS = 5
ROOT = Path(__file__).parents[2]


@dataclass
class Tally:
    """What became of the files of a target. `slowest`: seconds, `largest`: bytes of one file."""

    target: str
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0
    slowest: float = 0
    largest: int = 0

    def __str__(self) -> str:
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        peaks = f"slowest {self.slowest:.2f} s, largest {self.largest / 2**20:.0f} MiB"
        return f"{self.target}: {told}; {self.seconds:.1f} s, {peaks}"


class Child:
    """A process that reads files. It is started again after a file that it does not survive."""

    def __init__(self, seconds: float = SECONDS, most_bytes: int = BYTES) -> None:
        self._seconds, self._bytes = seconds, most_bytes
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - of the process
        self._process: subprocess.Popen[bytes] | None = None
        self._held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGKILL)

    def hunt(self, target: str, seed: int, first: int, count: int) -> Tally:
        """Run damaged files `first` to `first + count`, or up to some faults."""
        tally, stop, began = Tally(target), first + count, time.monotonic()
        while first < stop and len(tally.faults) < MOST_FAULTS:
            first = self._run({"target": target, "seed": seed, "first": first, "count": stop - first}, tally)
        tally.seconds = time.monotonic() - began
        return tally

    def again(self, target: str) -> Tally:
        """Run the kept files, which were faults once."""
        tally = Tally(target)
        self._run({"target": target}, tally)
        return tally

    def _run(self, order: dict[str, Any], tally: Tally) -> int:
        """The number of the next file."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        number = -1
        began, limit = time.monotonic(), START_SECONDS
        while True:
            answer, lost = self._answer(began + limit)
            name = f"{tally.target}, seed {order.get('seed')}, file {number}"
            if lost:
                self._log.seek(0)
                said = self._log.read()[-4000:].decode(errors="replace")
                if number < 0:
                    raise RuntimeError(f"{tally.target}: no file was begun: {lost}\n{said}")
                tally.faults.append(f"{name}: {lost}\n{said}")
                tally.outcomes[lost.partition(":")[0]] += 1
                return number + 1
            if "end" in answer:
                return order.get("first", 0) + order.get("count", 0)
            if "at" in answer:
                number, began, limit = answer["at"], time.monotonic(), self._seconds
                continue
            tally.slowest = max(tally.slowest, time.monotonic() - began)
            tally.largest = max(tally.largest, answer["bytes"])
            fault = answer.get("fault", "")
            if answer["bytes"] > self._bytes:
                fault = f"memory: {answer['bytes'] / 2**20:.0f} MiB"
            tally.outcomes["fault" if fault else answer["outcome"]] += 1
            if fault:
                tally.faults.append(f"{name}: {fault}")
                if len(tally.faults) >= MOST_FAULTS:
                    self._end(signal.SIGKILL)
                    return number + 1
            began, limit = time.monotonic(), START_SECONDS

    def _answer(self, deadline: float) -> tuple[dict[str, Any], str]:
        """The next answer, or why there is none: then the process has ended."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        while b"\n" not in self._held:
            ready, _, _ = select.select([process.stdout], [], [], 1 / LOOKS_A_SECOND)
            if ready:
                piece = os.read(process.stdout.fileno(), 2**16)
                self._held += piece
                if not piece:
                    return {}, f"died: exit code {self._end(signal.SIGCONT)}"  # it may still say why
            elif (held := _resident_bytes(process.pid)) > self._base + 2 * self._bytes:
                self._end(signal.SIGABRT)
                return {}, f"memory: {(held - self._base) / 2**20:.0f} MiB, and more to come"
            elif time.monotonic() > deadline:
                self._end(signal.SIGABRT)
                return {}, f"hang: no answer within {self._seconds:g} s"
        line, _, self._held = self._held.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        self._base = answer.get("held", self._base)
        return answer, ""

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._held, self._base = b"", 2**40
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - of the process
            command, pipe = [sys.executable, "-m", "tests.fuzz.child"], subprocess.PIPE
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=self._log)
        return self._process

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        with process:  # closes its pipes
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.returncode


def _resident_bytes(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--keep", type=Path, help="write the first file there, and run nothing")
    given = parser.parse_args()
    targets = given.targets or list(makers())
    if given.keep:
        from tests.fuzz.child import drawn

        _, sample = next(drawn({"target": targets[0], "seed": given.seed, "first": given.first, "count": 1}))
        given.keep.write_bytes(sample.content)
        print(f"{given.keep}: {len(sample.content)} bytes, of {sample.name}")
        return
    faults = 0
    with Child() as child:
        for target in targets:
            tally = child.hunt(target, given.seed, given.first, given.count)
            faults += len(tally.faults)
            print(tally, *tally.faults, sep="\n  ", flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
