"""Run a sample of a job undisturbed, and again under kills and pauses; compare both row by row.

Both runs are `overnight run --limit-rows` in processes of their own, with a `state` in a temporary folder: real data
does not change. The seed draws what is killed or frozen, and at which share of the staged rows.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from overnight.flows.chaos.processes import MARK, end_all, processes_with, send, wait_until
from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.differences import compare
from overnight.flows.ledger.results import Result
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.state.staged_parts import PART, read_records
from overnight.tasks.storage.location import Location

KILL_RUN, FREEZE_RUN = "the run killed", "the run frozen until another one ended"
KILL_WORKER, FREEZE_WORKER = "a worker killed", "a worker frozen"
WORKERS = ("ray::", "overnight.tasks.workers.fork_server")
FROZEN_SECONDS = (0.5, 5.0)
END_SECONDS = 120.0
PARTS_BETWEEN_KILLS = 3
FAILURES = 3  # of runs under strikes; the next failure ends the rehearsal
COMMAND = "from overnight.cli.main import main; main(prog_name='overnight')"


@dataclass(frozen=True)
class Strike:
    """What is killed or frozen once so large a share of the rows is staged. `choice` picks the worker, from 0 to 1."""

    what: str
    share: float
    seconds: float
    choice: float


@dataclass
class Report:
    """What became of the rows of the sample. `strikes` has each one that hit, in their order.

    `missed` strikes found no moment, because a run ended before it.
    """

    job: str
    partition: str
    seed: int
    rows: int
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    recomputed: int = 0
    runs: int = 0
    missed: int = 0
    strikes: list[dict[str, Any]] = field(default_factory=list)
    kept: str = ""  # the folder of both results, if they differ

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.torn)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def draw_strikes(count: int, seed: int) -> list[Strike]:
    """Return what the seed draws, in the order of the shares. At most one run is frozen: it waits for a lease's end."""
    chance = random.Random(seed)
    kinds = [KILL_RUN, FREEZE_RUN, KILL_WORKER, FREEZE_WORKER]
    chance.shuffle(kinds)
    strikes = []
    for share in sorted(chance.uniform(0.0, 0.95) for _ in range(count)):
        kind = chance.choice([KILL_RUN, KILL_WORKER, FREEZE_WORKER])
        if kinds:
            kind = kinds.pop()
        strikes.append(Strike(kind, share, chance.uniform(*FROZEN_SECONDS), chance.random()))
    return strikes


class Started:
    """A run of the job in a process of its own; `mark` is in the environment of all that it starts."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.mark, self.began = uuid.uuid4().hex, time.monotonic()
        self._out, self._log = folder / f"{self.mark}.json", folder / f"{self.mark}.log"
        environment = {**os.environ, MARK: self.mark, "OVERNIGHT_FORK_SERVER": ""}
        with self._out.open("w") as out, self._log.open("w") as log:
            line = [sys.executable, "-c", COMMAND, *command]
            self.process = subprocess.Popen(line, env=environment, stdout=out, stderr=log, start_new_session=True)

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def workers(self) -> list[int]:
        commands = processes_with(MARK, self.mark)
        return sorted(pid for pid, command in commands.items() if any(name in command for name in WORKERS))

    def receipt(self) -> dict[str, Any]:
        """Return the receipt that the run printed. Raise `OvernightError` with the end of its output if it failed."""
        if self.process.wait() != 0:
            raise OvernightError(f"a run of the sample failed by itself:\n{self._log.read_text()[-2000:]}")
        return dict(json.loads(self._out.read_text()))

    def end(self) -> None:
        """Kill the run, and wait until its Ray has noticed; kill what is left."""
        send(self.process.pid)
        self.process.wait()
        wait_until(lambda: not processes_with(MARK, self.mark), END_SECONDS / 2)
        end_all(MARK, self.mark)


@dataclass
class Rehearsal:
    """A job, and the partition and rows of the sample. `folder` is for the results of both runs."""

    path: Path
    partition: str
    rows: int
    settings: tuple[str, ...]
    folder: Path
    running: list[Started] = field(default_factory=list)

    def play(self, strikes: Sequence[Strike], seed: int) -> Report:
        """Run the sample undisturbed and under the strikes, and compare."""
        if os.environ.get("RAY_ADDRESS"):
            raise JobError(
                "expected no RAY_ADDRESS, found one: `overnight chaos` kills processes of a Ray of its own, never "
                "those of a cluster that others use. Unset it for this command."
            )
        handler = signal.signal(signal.SIGTERM, signal.default_int_handler)  # without it, the runs would stay
        try:
            reference = self._start("undisturbed", 1).receipt()
            parts = PARTS_BETWEEN_KILLS * (len(strikes) + 1)
            report = Report(reference["job"], self.partition, seed, reference["rows_in"])
            result = self._disturbed(strikes, max(reference["rows_out"] // parts, 1), report)
            self._compare(reference, result, report)
            return report
        finally:
            for run in self.running:
                end_all(MARK, run.mark)
            signal.signal(signal.SIGTERM, handler)

    def _start(self, side: str, rows_per_part: int) -> Started:
        settings = [f"state={self.folder / side}", *self.settings]
        if side == "disturbed":
            settings.append(f"sink.rows_per_part={rows_per_part}")
        options = [f"--set={setting}" for setting in settings]
        day = []
        if self.partition != "all":
            day = ["--partition", self.partition]
        limit = f"--limit-rows={self.rows}"
        run = Started(["run", str(self.path), "--json", "--quiet", limit, *day, *options], self.folder)
        self.running.append(run)
        return run

    def _job(self, side: str) -> Job:
        return load_job(self.path, [*self.settings, f"state={self.folder / side}"])

    def _disturbed(self, strikes: Sequence[Strike], rows_per_part: int, report: Report) -> dict[str, Any]:
        """Run the sample until each strike has hit, and a run ended. Return the last receipt."""
        pending, frozen, row_count, failures = list(strikes), None, 0, FAILURES
        run = self._start("disturbed", rows_per_part)
        while True:
            report.runs += 1
            hit = self._strike(run, pending, report, rows_per_part)
            if hit and hit.what == FREEZE_RUN:
                frozen = run
            elif not hit and run.process.returncode and failures:
                failures -= 1  # a strike may end a run, which the next one resumes
            elif not hit:
                receipt = run.receipt()
                report.recomputed += max(row_count - receipt["rows_resumed"], 0)
                if pending:
                    pending.pop(0)
                    report.missed += 1
                if not pending:
                    break
            row_count = self._staged_rows()
            run = self._start("disturbed", rows_per_part)
        if frozen:
            self._wake(frozen)
        return receipt

    def _strike(self, run: Started, pending: list[Strike], report: Report, rows_per_part: int) -> Strike | None:
        """Make the strikes whose share is staged; return one that ends or freezes the run, or None if the run ended."""
        while pending and not run.is_over:
            strike = pending[0]
            parts = self._parts()
            share = parts * rows_per_part / max(report.rows, 1)
            victims = [run.process.pid]
            if parts and share >= strike.share and strike.what in (KILL_WORKER, FREEZE_WORKER):
                victims = run.workers()
            if not (parts and victims) or share < strike.share:
                time.sleep(0.05)
                continue
            pending.pop(0)
            seconds = round(time.monotonic() - run.began, 1)
            report.strikes.append({"what": strike.what, "share": round(share, 3), "seconds": seconds})
            victim = victims[int(strike.choice * len(victims))]
            if strike.what == KILL_RUN:
                run.end()
                return strike
            if strike.what == FREEZE_RUN:
                send(victim, signal.SIGSTOP)
                return strike
            if strike.what == KILL_WORKER:
                send(victim)
                continue
            send(victim, signal.SIGSTOP)
            time.sleep(strike.seconds)
            send(victim, signal.SIGCONT)
        run.process.wait()
        return None

    def _wake(self, frozen: Started) -> None:
        """Let the frozen run go on. It must find that it lost its lease."""
        send(frozen.process.pid, signal.SIGCONT)
        wait_until(lambda: frozen.is_over, END_SECONDS)
        frozen.end()

    def _homes(self) -> list[Location]:
        generations = self._job("disturbed").samples.ledger(self.partition) / "generations"
        return [generations / name / "parts" for name in generations.names()]

    def _parts(self) -> int:
        return sum(name.endswith(PART) for home in self._homes() for name in home.names())

    def _staged_rows(self) -> int:
        """Return the number of source rows that staged parts settle, between two runs."""
        rows = 0
        for home in self._homes():
            for record in read_records(home):
                rows += int(sum(record.ranges["stop"].to_numpy() - record.ranges["start"].to_numpy()))
        return rows

    def _compare(self, undisturbed: dict[str, Any], disturbed: dict[str, Any], report: Report) -> None:
        a = Result(self._job("undisturbed"), undisturbed, "undisturbed")
        b = Result(self._job("disturbed"), disturbed, "disturbed")
        differences = compare(a, b)
        ids = [row_id for rows in b.batches(["row_id"]) for row_id in rows["row_id"].to_pylist()]
        report.lost = differences.only_a.rows
        report.doubled = len(ids) - len(set(ids)) + differences.only_b.rows
        report.torn = differences.changed or len(differences.columns_only_a) + len(differences.columns_only_b)
        if not report.is_exact:
            report.kept = str(self.folder)
