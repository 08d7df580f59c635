"""Show the progress of each stage while the stream runs, and end a stream that stalls.

A thread shows the progress, because an update of the Prefect server takes far longer than a step of the stream.
"""

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from overnight.tasks.engine.progress import QUIET_SECONDS
from overnight.tasks.engine.stream import OperatorNames, Streamed
from overnight.tasks.errors import OvernightError, StageFailed
from overnight.tasks.resources.ray_internals import OperatorState, ending_workers, operators
from overnight.tasks.resources.sampler import Devices, Pace, Sample, Series, read_sample
from overnight.tasks.state.run import now as utc_now

if TYPE_CHECKING:
    from ray.data import Dataset

SECONDS_BETWEEN, SECONDS_BETWEEN_LATER = 1.0, 10.0  # in a run's first seconds, and after three minutes


@dataclass(frozen=True)
class Moment:
    """What a stream shows at one moment: the finished rows of each stage before the write, its load and its result.

    `is_last` if the stream has ended, and `is_complete` if it has done so without an error.
    """

    seconds: float
    rows: dict[str, int]
    wait: str  # what the stream waits for, empty while rows move
    load: Sample
    streamed: Streamed
    is_last: bool = False
    is_complete: bool = False


class StreamStopped(OvernightError):
    """Raised in a stream that must end, because a user interrupted the run."""

    stage = "infer"
    status = "cancelled"


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
            reasons.append(f"Ray tasks that do not end ({operator.tasks})")
        if operator.starting:
            reasons.append(f"workers that do not start ({operator.starting})")
        if operator.queued:
            reasons.append(f"blocks in its queue ({operator.queued})")
        free, total = ray.available_resources(), ray.cluster_resources()
        resources = [
            f"{free.get(name, 0):g} of {total[name]:g} {name}s free" for name in ("CPU", "GPU") if name in total
        ]
        stages = _stages(operator, names) or ["ingest"]
        return stages[-1], f"{', '.join(reasons)}; {', '.join(resources)}"
    if operators and all(operator.is_complete for operator in operators):
        return "write", "the last rows, which are being staged"
    return "write", "Ray Data, which has no Ray task and no block to run"


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
    states: list[OperatorState] = field(default_factory=list)  # at the last step
    end: OvernightError | None = None  # the reason for which the stream must end

    def on_step(self, executor: Any) -> None:
        """Update the rows and the result. Raise the reason if the stream must end.

        Raise `StageFailed`, of type Stalled, if no row moved for too long.
        """
        if self.end:
            raise self.end
        states = self.states = list(operators(executor))
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

    def moment(self, load: "_Load") -> Moment:
        """Return what the stream shows now, and note the samples in its result."""
        self.streamed.samples = {"started_at": load.began, **load.series.as_json()}
        return Moment(self.seconds(), dict(self.rows), self._wait(), load.pace.latest, self.streamed)

    def _wait(self) -> str:
        """Return what the stream waits for, if no row has moved for `QUIET_SECONDS`, otherwise an empty string."""
        if not self.states or self.seconds() - self.moved < QUIET_SECONDS:
            return ""
        stage, wait = describe_wait(self.states, self.names)
        return f"{stage}: {wait}"

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
    show: Callable[[Moment], None],
    stall_timeout_seconds: float | None = None,
    reason_to_end: Callable[[], OvernightError | None] = lambda: None,
) -> Iterator[Streamed]:
    """Show the progress of `dataset` from a thread while the body runs it. End its workers with the body.

    Yield the stream's result. Raise `StageFailed` for a stall, and the error that `reason_to_end` returns.
    """
    dataset.context.execution_no_progress_timeout_s = -1  # Ray Data's own watchdog, whose error has no stage
    steps, stop = _Steps(names, stall_timeout_seconds, rows=dict.fromkeys(names, 0)), threading.Event()
    load = _Load(Devices())

    def keep_showing() -> None:
        due = 0.0
        with contextlib.suppress(Exception):
            read_sample()  # the first of a thread has no load of CPUs
        while not stop.wait(SECONDS_BETWEEN):
            with contextlib.suppress(Exception):  # neither the load nor the progress may cost the run
                load.look(steps)
            with contextlib.suppress(Exception):
                steps.end = reason_to_end()
            with contextlib.suppress(Exception):
                if steps.seconds() >= due:
                    # Each update costs the Prefect server CPU, and a long run needs them less often.
                    due = steps.seconds() + min(steps.seconds() / 20, SECONDS_BETWEEN_LATER)
                    show(steps.moment(load))

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
            show(replace(steps.moment(load), wait="", is_last=True, is_complete=is_complete))


@dataclass
class _Load:
    """The load of this machine and the rows of the stages over time, for the receipt."""

    devices: Devices
    began: str = field(default_factory=utc_now)
    pace: Pace = field(default_factory=Pace)
    series: Series = field(default_factory=Series)

    def look(self, steps: _Steps) -> None:
        """Add a sample to the series if it is due."""
        seconds = steps.seconds()
        if not self.pace.sample(seconds, partial(read_sample, self.devices)):
            return
        rows = {f"rows_{stage}": steps.rows.get(stage, 0) for stage in steps.names}
        self.series.add({"seconds": seconds, **self.pace.latest, **rows})
