"""Show the progress of each stage while the stream runs, and end a stream that stalls.

A thread shows the progress, because an update of the Prefect server takes far longer than a step of the stream.
"""

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


def rows_by_stage(operators: Iterable[OperatorState], names: OperatorNames) -> dict[str, int]:
    """Return the number of finished rows of each stage, including END rows, from the states of Ray Data's operators.

    An operator into which Ray Data fused several stages counts for each of them. If there are several models, the last
    one counts for `infer`.
    """
    return {stage: operator.rows_out for operator in operators for stage in _stages(operator, names)}


def without_ends(rows: dict[str, int], ends: int) -> dict[str, int]:
    """Return `rows` (stage -> finished rows) without END rows. `ends` is the number of END rows read so far.

    How many of them each stage has finished is unknown, so each count is reduced by the same fraction.
    """
    read = max([*rows.values(), ends, 1])
    return {stage: round(count * (1 - ends / read)) for stage, count in rows.items()}


def with_passed(rows: dict[str, int], passed: Mapping[str, int]) -> dict[str, int]:
    """Return `rows` (stage -> finished rows) with the rows that have passed a stage inside a worker.

    `passed` maps such stages to these rows. Ray Data counts a row of such a worker only when it has passed all stages.
    A stage has at least the rows of `infer`, because a restarted supervisor has lost its counts.
    """
    return rows | {stage: max(count, rows.get("infer", 0)) for stage, count in passed.items()}


def progress_of(rows: Mapping[str, int], total: int | None, finished: bool) -> Progress:
    """Return the percent and the text of each stage, from `rows`: stage -> its finished rows.

    `total` is the number of source rows to do, None if unknown; then the percent is unknown, too. If `finished`, the
    stream has ended and each stage has 100 %.
    """
    known = rows["ingest"] if finished else total
    progress: dict[str, tuple[float | None, str]] = {}
    for stage in STREAM_STAGES:
        count = rows.get(stage, 0)
        if total is not None:
            count = min(count, total)  # Ray Data counts a weight as a row
        percent = min(99.9, 100 * count / total) if total else (None if total is None else 0.0)
        progress[stage] = (100.0 if finished else percent, described(stage, count, known, finished))
    return progress


def described(stage: str, done: int, total: int | None, finished: bool) -> str:
    """Return the progress of a stage as a text, such as `infer: 10 of 20 rows`.

    The stage has finished `done` of `total` rows; `total` is None if it is unknown. If the stream is `finished`, the
    other rows ended in an earlier stage, and the text has their number: `infer: 18 rows; 2 ended before it`. If `done`
    is 0 then, the text is only `infer: 0 rows`.
    """
    if finished and total and 0 < done < total:  # with none the job has no such stage
        return f"{stage}: {done:,} rows; {total - done:,} ended before it"
    if total is None or (finished and not done):
        return f"{stage}: {done:,} rows"
    return f"{stage}: {done:,} of {total:,} rows"


def describe_wait(operators: Sequence[OperatorState], names: OperatorNames) -> tuple[str, str]:
    """Return the stage for which a stalled stream waits, and a phrase that names what it waits for.

    The stage is the last one that has running Ray tasks or queued blocks.
    """
    for operator in reversed(operators):
        if operator.is_complete or not (operator.tasks or operator.queued):
            continue
        waits = [f"{operator.tasks} Ray tasks run and do not end"] if operator.tasks else []
        if operator.starting:
            waits.append(f"{operator.starting} workers do not start")
        free, total = ray.available_resources(), ray.cluster_resources()
        rooms = ", ".join(
            f"{free.get(name, 0):g} of {total[name]:g} {name}s free" for name in ("CPU", "GPU") if name in total
        )
        waits_for = " and ".join([*waits, f"{operator.queued} blocks wait"])
        return (_stages(operator, names) or ["ingest"])[-1], f"{waits_for}; {rooms}"
    return "write", "nothing that Ray Data reports"


def stages_at_work(operators: Iterable[OperatorState], names: OperatorNames) -> set[str]:
    """Return the stages that have a running Ray task, from the states of Ray Data's operators."""
    return {stage for operator in operators if operator.tasks for stage in _stages(operator, names)}


def _stages(operator: OperatorState, names: OperatorNames) -> list[str]:
    return [stage for stage, parts in names.items() if any(part in operator.name for part in parts)]


def _interval(elapsed: float) -> float:
    """Return the seconds between updates: each costs the Prefect server CPU, and a long run needs them less often."""
    return min(SECONDS_BETWEEN + elapsed / 20, SECONDS_BETWEEN_LATER)


@contextlib.contextmanager
def follow(
    dataset: "Dataset",
    names: OperatorNames,
    tell: Callable[[dict[str, int], bool], None],
    stall_timeout_seconds: float | None = None,
) -> Iterator[Streamed]:
    """Report the progress of `dataset` from a thread while the body runs it, and end its workers with the body.

    `names` has the names by which operators of `dataset` are recognized. Yield the stream's result, whose times are
    filled in meanwhile. `tell` gets stage -> finished rows, without those of `write`, and a bool that is True in the
    last call if the body succeeded. Raise `StageFailed`, of type Stalled, in the body when no row moved
    for `stall_timeout_seconds`; None for no limit.
    """
    seen: dict[str, int] = {}
    stop = threading.Event()
    began = time.monotonic()
    last: tuple[float, Any] = (began, None)
    streamed = Streamed()

    def on_step(executor: Any) -> None:
        nonlocal last
        states = list(operators(executor))
        seen.update(rows_by_stage(states, names))
        moment = utc_now()
        for stage in stages_at_work(states, names):
            streamed.times[stage] = (streamed.times.get(stage, (moment,))[0], moment)
        now, moved = time.monotonic(), [(state.rows_out, state.rows_in) for state in states]
        if not streamed.first_rows and (first := states[-1].rows_out):
            streamed.first_seconds, streamed.first_rows = now - began, first
        if moved != last[1]:
            last = (now, moved)
        elif stall_timeout_seconds and now - last[0] >= stall_timeout_seconds:
            stage, wait = describe_wait(states, names)
            raise StageFailed(
                f"no row moved in any stage for {stall_timeout_seconds:g} s (stall_timeout_seconds). "
                f"The stream waits for {stage}: {wait}. Staged parts are kept; run again to resume.",
                stage,
                "Stalled",
            )

    dataset.context.execution_no_progress_timeout_s = -1  # Ray Data's own watchdog, whose error has no stage

    def keep_telling() -> None:
        while not stop.wait(_interval(time.monotonic() - began)):
            with contextlib.suppress(Exception):  # progress must never cost the run
                tell(dict(seen), False)

    # a thread has no context of its own; without this one it would use other settings of Prefect
    here = contextvars.copy_context()
    thread = threading.Thread(target=here.run, args=(keep_telling,), name="progress", daemon=True)
    thread.start()
    finished = False
    try:
        with ending_workers(dataset, on_step):
            yield streamed
        finished = True
    finally:
        streamed.seconds = time.monotonic() - began
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):
            tell(dict(seen), finished)
