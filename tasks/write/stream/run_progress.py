"""The progress of a run: counts of the stream, of the staged parts and of the supervisor become one value."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.engine.progress import Look, Progress, never_less, progress_of
from overnight.tasks.engine.stream import Streamed
from overnight.tasks.state import read_plan
from overnight.tasks.state.run import Run, write_json
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import Snapshot, Supervisor
from overnight.tasks.write.stream.progress import Moment

if TYPE_CHECKING:
    from overnight.tasks.write.stream.staging import Staging

LOOKS = 120  # of the last minutes
SECONDS_BETWEEN, SECONDS_AT_THE_END = 10.0, 5.0  # of the timeline's file


@dataclass
class RunProgress:
    """Makes a progress of each look at a stream, and shows it. `counts` has the size and the rows of each unit."""

    run: Run
    counts: pa.Table
    staging: "Staging"
    show: Callable[[Progress], None]
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=LOOKS))
    latest: Progress | None = None

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.run)
        self.total: int | None = None
        if self.counts["rows"].null_count == 0:
            self.total = int(pc.sum(self.counts["rows"]).as_py() or 0)
        self.resumed, self.already = read_plan.read_earlier(self.run.order)

    def look(self, moment: Moment) -> None:
        """Show the source rows that each stage has done, and begin a part that is due, every few seconds.

        In the end, the staged parts have the rows of all stages.
        """
        rows = moment.rows
        self.staging.begin_if_due()
        snapshot = supervisor.snapshot(self.run)
        quarantine_count, _ = supervisor.ask(self.run, Supervisor.quarantined_since, 0, 0) or (0, [])
        totals = self.staging.staged
        if moment.is_complete:
            rows = {stage: totals.rows[stage] for stage in (*rows, "write")}
        else:
            rows = with_passed(rows, snapshot.passed)
            if self.total is None:
                rows = without_ends(rows, snapshot.ends)
            rows = rows | {"write": totals.rows["write"]}
        self._keep(moment, rows)
        began = datetime.fromisoformat(self.run.started_at)
        look = Look(
            seconds=(datetime.now(UTC) - began).total_seconds(),
            rows=self._of_partition(rows),
            total=self.total,
            resumed=self.resumed,
            filtered=totals.filtered,
            quarantined=quarantine_count + self.already,
            tokens=totals.tokens,
            cost=totals.cost,
            load=moment.load,
            incident=_last_incident(snapshot),
            wait=moment.wait,
        )
        self.looks.append(look)
        self.latest = never_less(progress_of(self.looks, moment.is_complete), self.latest)
        self.show(self.latest)

    def _keep(self, moment: Moment, rows: Mapping[str, int]) -> None:
        if self.total is not None:
            rows = {stage: min(count, self.total) for stage, count in rows.items()}
        if moment.is_last:
            self.timeline.finish(moment.streamed, rows)
        else:
            self.timeline.keep(moment.streamed, rows, moment.seconds)

    def _of_partition(self, rows: Mapping[str, int]) -> dict[str, int]:
        """Return `rows` of this attempt with those of earlier attempts, and without the padding of blocks."""
        counts = {stage: count + self.resumed for stage, count in rows.items()}
        if self.total is not None:
            counts = {stage: min(count, self.total) for stage, count in counts.items()}
        return counts


def _last_incident(snapshot: Snapshot) -> str:
    if not snapshot.last_incident:
        return ""
    incident = snapshot.last_incident
    return f"{incident.stage}: {incident.what}"


def without_ends(rows: dict[str, int], ends: int) -> dict[str, int]:
    """Return `rows` (stage -> finished rows) without END rows. `ends` is the number of END rows read so far.

    How many of them each stage has finished is unknown, so each count is reduced by the same fraction.
    """
    share = ends / max([*rows.values(), ends, 1])
    return {stage: round(count * (1 - share)) for stage, count in rows.items()}


def with_passed(rows: dict[str, int], passed: Mapping[str, int]) -> dict[str, int]:
    """Return `rows` (stage -> finished rows) with those inside workers, which Ray Data counts only after all stages.

    A stage has at least the rows of `infer`, because a restarted supervisor has lost its counts.
    """
    return rows | {stage: max(count, rows.get("infer", 0)) for stage, count in passed.items()}


@dataclass
class Timeline:
    """Writes the stages and the load of an attempt to its file, so that a run that fails has a timeline too.

    A thread writes it every ten seconds, so that a storage that is away delays nothing.
    """

    run: Run
    due: float = 0.0  # in seconds of the stream
    writing: threading.Thread | None = None

    def keep(self, streamed: Streamed, rows: Mapping[str, int], seconds: float) -> None:
        """Begin to write the file if it is due. `rows` has the rows that each stage has done."""
        if seconds < self.due or (self.writing and self.writing.is_alive()):
            return
        self.due = seconds + SECONDS_BETWEEN
        stages = {}
        for stage, count in rows.items():
            started_at, finished_at = streamed.times.get(stage, (None, None))
            stages[stage] = {"rows": count, "started_at": started_at, "finished_at": finished_at}
        content = {"started_at": self.run.started_at, "stages": stages, "samples": streamed.samples}
        self.writing = threading.Thread(target=self._write, args=(content,), name="timeline", daemon=True)
        self.writing.start()

    def finish(self, streamed: Streamed, rows: Mapping[str, int]) -> None:
        """Write the file for the last time, and wait a few seconds for the storage."""
        self._wait()
        self.keep(streamed, rows, self.due)
        self._wait()

    def _wait(self) -> None:
        if self.writing:
            self.writing.join(SECONDS_AT_THE_END)

    def _write(self, content: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # it only informs
            write_json(self.run.timeline, content)
