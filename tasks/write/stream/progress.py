"""Show the progress of each stage while the stream runs, and end a stream that stalls.

A thread shows the progress, because an update of the Prefect server takes far longer than a step of the stream.
"""

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray

from overnight.tasks.engine.stream import OperatorNames, Streamed
from overnight.tasks.errors import STREAM_STAGES, StageFailed
from overnight.tasks.resources.ray_internals import OperatorState, ending_workers, operators
from overnight.tasks.state.run import now as utc_now

if TYPE_CHECKING:
    from ray.data import Dataset

Progress = Mapping[str, tuple[float | None, str]]  # by stage: percent, None if unknown, and text
SECONDS_BETWEEN, SECONDS_BETWEEN_LATER = 1.0, 10.0  # in a run's first seconds, and after three minutes


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


def progress_of(rows: Mapping[str, int], total: int | None, finished: bool) -> Progress:
    """Return the percent and the text of each stage. `rows` has finished rows by stage; `total` is None if unknown."""
    progress: dict[str, tuple[float | None, str]] = {}
    for stage in STREAM_STAGES:
        count = rows.get(stage, 0)
        percent = None
        if total is not None:
            count = min(count, total)  # Ray Data counts a weight as a row
            percent = min(99.9, 100 * count / max(total, 1))
        if finished:
            progress[stage] = (100.0, described(stage, count, rows["ingest"], finished))
        else:
            progress[stage] = (percent, described(stage, count, total, finished))
    return progress


def described(stage: str, done: int, total: int | None, finished: bool) -> str:
    """Return a stage's progress as text, such as `infer: 10 of 20 rows`.

    In a finished stream, the other rows ended in an earlier stage: `infer: 18 rows; 2 ended before it`.
    """
    if finished and total and 0 < done < total:  # with none the job has no such stage
        return f"{stage}: {done:,} rows; {total - done:,} ended before it"
    if total is None or (finished and not done):
        return f"{stage}: {done:,} rows"
    return f"{stage}: {done:,} of {total:,} rows"


def stalled(event: str, seconds: float, detail: str, stage: str) -> StageFailed:
    """Return the error for a stream in which `event` lasted for `seconds`, the job's `stall_timeout_seconds`."""
    return StageFailed(
        f"{event} for {seconds:g} s (stall_timeout_seconds){detail}. Staged parts are kept; run again to resume.",
        stage,
        "Stalled",
    )


def describe_wait(operators: Sequence[OperatorState], names: OperatorNames) -> tuple[str, str]:
    """Return the last stage with running Ray tasks or queued blocks, and a phrase that names what it waits for."""
    for operator in reversed(operators):
        if operator.is_complete or not (operator.tasks or operator.queued):
            continue
        reasons = []
        if operator.tasks:
            reasons.append(f"{operator.tasks} Ray tasks run and do not end")
        if operator.starting:
            reasons.append(f"{operator.starting} workers do not start")
        reasons.append(f"{operator.queued} blocks wait")
        free, total = ray.available_resources(), ray.cluster_resources()
        resources = [
            f"{free.get(name, 0):g} of {total[name]:g} {name}s free" for name in ("CPU", "GPU") if name in total
        ]
        stages = _stages(operator, names) or ["ingest"]
        return stages[-1], f"{' and '.join(reasons)}; {', '.join(resources)}"
    return "write", "nothing that Ray Data reports"


def stages_at_work(operators: Iterable[OperatorState], names: OperatorNames) -> set[str]:
    """Return the stages that have a running Ray task."""
    stages = set[str]()
    for operator in operators:
        if operator.tasks:
            stages.update(_stages(operator, names))
    return stages


def _stages(operator: OperatorState, names: OperatorNames) -> list[str]:
    stages = []
    for stage, parts in names.items():
        if any(part in operator.name for part in parts):
            stages.append(stage)
    return stages


@dataclass
class _Steps:
    """The finished rows by stage and the result of a stream, as its steps show them. Ray Data pickles it."""

    names: OperatorNames
    stall_timeout_seconds: float | None
    began: float = field(default_factory=time.monotonic)
    rows: dict[str, int] = field(default_factory=dict)
    streamed: Streamed = field(default_factory=Streamed)
    counts: list[tuple[int, int]] = field(default_factory=list)  # of rows in and out, at the last movement
    moved: float = 0.0  # seconds at the last movement

    def on_step(self, executor: Any) -> None:
        """Update the rows and the result. Raise `StageFailed`, of type Stalled, if no row moved for too long."""
        states = list(operators(executor))
        for state in states:  # an operator into which Ray Data fused several stages counts for each of them
            self.rows.update(dict.fromkeys(_stages(state, self.names), state.rows_out))
        moment = utc_now()
        for stage in stages_at_work(states, self.names):
            first, _ = self.streamed.times.get(stage, (moment, moment))
            self.streamed.times[stage] = (first, moment)
        if not self.streamed.first_rows:
            self.streamed.first_rows = states[-1].rows_out
            self.streamed.first_seconds = self.seconds() if states[-1].rows_out else 0.0
        self._raise_if_stalled(states)

    def seconds(self) -> float:
        """Return the seconds since the beginning of the stream."""
        return time.monotonic() - self.began

    def _raise_if_stalled(self, states: list[OperatorState]) -> None:
        counts = [(state.rows_out, state.rows_in) for state in states]
        if counts != self.counts:
            self.counts, self.moved = counts, self.seconds()
        elif self.stall_timeout_seconds and self.seconds() - self.moved >= self.stall_timeout_seconds:
            stage, wait = describe_wait(states, self.names)
            detail = f". The stream waits for {stage}: {wait}"
            raise stalled("no row moved in any stage", self.stall_timeout_seconds, detail, stage)


@contextlib.contextmanager
def follow(
    dataset: "Dataset",
    names: OperatorNames,
    show: Callable[[dict[str, int], bool], None],
    stall_timeout_seconds: float | None = None,
) -> Iterator[Streamed]:
    """Show the progress of `dataset` from a thread while the body runs it, and end its workers with the body.

    `show` gets stage -> finished rows, and True in the last call after success. Raise `StageFailed` for a stall.
    """
    dataset.context.execution_no_progress_timeout_s = -1  # Ray Data's own watchdog, whose error has no stage
    steps, stop = _Steps(names, stall_timeout_seconds), threading.Event()

    def keep_showing() -> None:
        # Each update costs the Prefect server CPU, and a long run needs them less often.
        while not stop.wait(min(SECONDS_BETWEEN + steps.seconds() / 20, SECONDS_BETWEEN_LATER)):
            with contextlib.suppress(Exception):  # progress must never cost the run
                show(dict(steps.rows), False)

    # a thread has no context of its own; without this one it would use other settings of Prefect
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(keep_showing,), name="progress", daemon=True)
    thread.start()
    is_complete = False
    try:
        with ending_workers(dataset, steps.on_step):
            yield steps.streamed
        is_complete = True
    finally:
        steps.streamed.seconds = steps.seconds()
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):
            show(dict(steps.rows), is_complete)
