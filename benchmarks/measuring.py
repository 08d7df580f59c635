"""Measure one contender: seconds, the machine's CPU seconds, peak memory, and the time of the first rows.

CPU seconds are those of the whole machine during the run, minus the idle rate before it, and minus those of this
process. So they include services that the contender calls. Memory is PSS, which counts shared pages once, summed over
all processes with the run's mark in their environment, whatever their parent is. It is sampled every two seconds,
because sampling has a cost.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

BACKGROUND_SECONDS = 3.0
BUSY_CPUS = 0.1  # beyond it, a warning
LOOK_SECONDS, MEMORY_SECONDS = 0.1, 2.0
MARK = "OVERNIGHT_BENCHMARK"
Follow = Callable[[Path, threading.Event], None]


@dataclass(frozen=True)
class Measured:
    """The figures of one run."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    first_output_seconds: float | None
    steady_rows_per_second: float | None
    steady_from: float | None  # the interval of that rate, in seconds since 1970
    steady_to: float | None
    status: int
    error: str  # the end of its stderr


def measure(
    command: list[str],
    environment: dict[str, str],
    out: Path,
    rows: int,
    limit_seconds: float,
    follow: Follow | None = None,
) -> Measured:
    """Run `command`, which writes below `out`, until it ends, then end the processes that it left behind.

    `follow(folder, stop)` runs in a thread and notes progress in the folder, for systems that note none themselves.
    """
    mark = uuid.uuid4().hex
    progress = out.with_name(out.name + "-progress")
    progress.mkdir(parents=True)
    environment = {**environment, MARK: mark, "BENCHMARK_PROGRESS": str(progress)}
    background = idle_cpu_rate()
    if background > BUSY_CPUS:
        print(f"{background:.2f} CPUs are busy with other work, so the figures are not reliable", file=sys.stderr)
    log = out.with_name(out.name + "-log")
    watch, stop = Watch(mark, out), threading.Event()
    follower = threading.Thread(target=follow, args=(progress, stop), daemon=True) if follow else None
    with open(log, "wb") as errors:
        busy, own = busy_seconds(), time.process_time()
        started, began = time.perf_counter(), time.time()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        watch.start(began)
        if follower:
            follower.start()
        try:
            status = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            status = 124
        finally:
            seconds = time.perf_counter() - started
            stop.set()
            watch.stop()
            end(mark)
            process.wait()
    steady = steady_rate(noted(progress), rows)
    cpu = busy_seconds() - busy - (time.process_time() - own) - background * seconds
    return Measured(
        seconds=seconds,
        cpu_seconds=max(cpu, 0.0),
        peak_bytes=watch.peak_bytes,
        first_output_seconds=watch.first_output_seconds,
        steady_rows_per_second=steady[0] if steady else None,
        steady_from=steady[1] if steady else None,
        steady_to=steady[2] if steady else None,
        status=status,
        error=log.read_text(errors="replace")[-20_000:],
    )


def idle_cpu_rate() -> float:
    """Return the CPU seconds per second that other processes of the machine use."""
    before, own = busy_seconds(), time.process_time()
    time.sleep(BACKGROUND_SECONDS)
    return max(0.0, busy_seconds() - before - (time.process_time() - own)) / BACKGROUND_SECONDS


def busy_seconds() -> float:
    """Return the CPU seconds that the machine has been busy: user, nice, system, irq and softirq."""
    used = psutil.cpu_times()
    return float(used.user + used.nice + used.system + used.irq + used.softirq)


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes with the mark in their environment."""
    found = psutil.process_iter(["environ"])  # the environment of another user's process is None
    return [process for process in found if (process.info["environ"] or {}).get(MARK) == mark]


def end(mark: str) -> None:
    """End the processes that a contender started and left running, by its mark."""
    for patience, how in ((3.0, signal.SIGTERM), (10.0, signal.SIGKILL)):
        deadline = time.monotonic() + patience
        while processes := marked(mark):
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(how)
            psutil.wait_procs(processes, timeout=0.2)
            if time.monotonic() > deadline:
                break


class Watch:
    """Watches in a thread for the first file with rows below `out`, and the memory of the marked processes."""

    def __init__(self, mark: str, out: Path) -> None:
        self.mark, self.out = mark, out
        self.peak_bytes, self.first_output_seconds = 0, None
        self._stop = threading.Event()

    def start(self, began: float) -> None:
        self._thread = threading.Thread(target=self._run, args=(began,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.first_output_seconds is None:
            self._look_for_output()

    def _run(self, began: float) -> None:
        self._began, next_memory = began, time.monotonic() + 1
        while not self._stop.wait(LOOK_SECONDS):
            if self.first_output_seconds is None:
                self._look_for_output()
            if time.monotonic() >= next_memory:
                self.peak_bytes = max(self.peak_bytes, sum(map(pss_bytes, marked(self.mark))))
                next_memory = time.monotonic() + MEMORY_SECONDS

    def _look_for_output(self) -> None:
        """Note the time of the first finished or staged part. A Parquet file has four bytes before its first row."""
        for folder, _, files in os.walk(self.out):
            for name in files:
                if name.endswith((".parquet", ".part")) and not name.startswith("."):
                    try:
                        found = os.stat(f"{folder}/{name}")
                    except FileNotFoundError:
                        continue
                    if found.st_size > 4:
                        self.first_output_seconds = time.time() - self._began
                        return


def pss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def noted(progress: Path) -> list[tuple[float, float]]:
    """Return the notes of processes: the time, and the rows since the note before."""
    lines = [line for file in progress.iterdir() for line in file.read_text().splitlines()]
    pairs = [line.split() for line in lines]
    return sorted((float(when), float(rows)) for when, rows in pairs)


def steady_rate(notes: list[tuple[float, float]], rows: int) -> tuple[float, float, float] | None:
    """Return the rows per second between a fifth and nine tenths of all rows, and the start and end of this interval.

    Return None with fewer than ten notes in the interval, because their times would then decide the rate.
    """
    done, inside = 0.0, []
    for when, count in notes:
        done += count
        if 0.2 * rows <= done <= 0.9 * rows:
            inside.append((when, done))
    if len(inside) < 10 or inside[-1][0] <= inside[0][0]:
        return None
    (begin, first), (finish, last) = inside[0], inside[-1]
    return (last - first) / (finish - begin), begin, finish
