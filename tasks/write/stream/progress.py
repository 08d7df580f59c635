"""Live progress of the stream, stage by stage, and the end of a stream that stands still.

Ray Data calls `on_execution_step` at every step, also while nothing moves. What an operator has done is only found in
the executor's private topology, and the callback's class is not exported (Ray 2.60): a test breaks when either moves. A
thread passes progress on, for telling a server takes far longer than a step.
"""

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray.data
from ray.data._internal.execution.execution_callback import ExecutionCallback
from ray.data._internal.stats import Timer

from overnight.tasks.errors import StageFailed
from overnight.tasks.state.stream import Streamed

OPERATORS = {
    "ingest": ("Ingest", "PreparingWorker"),
    "preprocess": ("run_steps", "PreparingWorker"),
    "infer": ("Worker",),
    "write": ("Write",),
}
SECONDS_BETWEEN, SECONDS_BETWEEN_LATER = 1.0, 10.0  # in a run's first seconds, and after three minutes


def read_topology(executor: Any) -> dict[str, int]:
    """Rows finished by stage, END rows among them.

    A fused operator counts for each stage in it; of several models the last counts.
    """
    rows: dict[str, int] = {}
    for operator in executor._topology:
        for stage in _stages(operator):
            done = operator.metrics.num_row_inputs_received if stage == "write" else operator.metrics.row_outputs_taken
            rows[stage] = int(done)
    return rows


def without_ends(rows: dict[str, int], ends: int) -> dict[str, int]:
    """Rows finished by stage, without their share of END rows: `ends` of those were read so far."""
    read = max([*rows.values(), ends, 1])
    return {stage: round(count * (1 - ends / read)) for stage, count in rows.items()}


def described(stage: str, done: int, total: int | None, finished: bool) -> str:
    """How far a stage is, in words. total: rows to do, None if nobody knows."""
    if finished and total and 0 < done < total:  # with none the job has no such stage
        return f"{stage}: {done:,} rows; {total - done:,} ended before it"
    if total is None or (finished and not done):
        return f"{stage}: {done:,} rows"
    return f"{stage}: {done:,} of {total:,} rows"


def _moved(executor: Any) -> list[tuple[int, int]]:
    """What changes whenever a row moves, of every operator."""
    return [(op.metrics.row_outputs_taken, op.metrics.num_row_inputs_received) for op in executor._topology]


def describe_wait(executor: Any) -> tuple[str, str]:
    """The stage that a stalled stream waits for and what it waits for: the last one that has work."""
    for operator, state in reversed(executor._topology.items()):
        running, queued = operator.num_active_tasks(), state.total_enqueued_input_blocks()
        if operator.has_completed() or not (running or queued):
            continue
        workers = operator.get_actor_info()
        waits = [f"{running} Ray tasks run and do not end"] if running else []
        if workers.pending or workers.restarting:
            waits.append(f"{workers.pending + workers.restarting} workers do not start")
        free, total = ray.available_resources(), ray.cluster_resources()
        rooms = ", ".join(
            f"{free.get(name, 0):g} of {total[name]:g} {name}s free" for name in ("CPU", "GPU") if name in total
        )
        return (_stages(operator) or ["ingest"])[-1], f"{' and '.join([*waits, f'{queued} blocks wait'])}; {rooms}"
    return "write", "nothing that Ray Data knows of"


def _end_workers(executor: Any) -> None:
    """Kill what runs. Ray Data would wait for a worker that hangs, which kept its CPU or GPU as long as its Ray."""
    for operator in executor._topology:
        operator.shutdown(Timer(), force=True)


def _stages(operator: Any) -> list[str]:
    return [stage for stage, marks in OPERATORS.items() if any(mark in operator.name for mark in marks)]


def _interval(elapsed: float) -> float:
    """A telling costs the Prefect server CPU, and nobody looks at a long run every second."""
    return min(SECONDS_BETWEEN + elapsed / 20, SECONDS_BETWEEN_LATER)


@contextlib.contextmanager
def follow(
    dataset: ray.data.Dataset, tell: Callable[[dict[str, int], bool], None], stall_timeout_seconds: float | None = None
) -> Iterator[Streamed]:
    """Calls `tell(rows finished by stage, whether all is done)` while the body runs `dataset`, more often at first.

    The body raises `StageFailed`, of type Stalled, when no row moved for `stall_timeout_seconds`; None: no limit.
    """
    seen: dict[str, int] = {}
    stop = threading.Event()
    began = time.monotonic()
    last: tuple[float, Any] = (began, None)
    streamed = Streamed()

    class Watch(ExecutionCallback):  # Ray instantiates it without arguments, hence here
        def on_execution_step(self, executor: Any) -> None:
            nonlocal last
            seen.update(read_topology(executor))
            now, moved = time.monotonic(), _moved(executor)
            if not streamed.first_rows and (first := seen.get("infer") or seen.get("write")):
                streamed.first_seconds, streamed.first_rows = now - began, first
            if moved != last[1]:
                last = (now, moved)
            elif stall_timeout_seconds and now - last[0] >= stall_timeout_seconds:
                stage, wait = describe_wait(executor)
                _end_workers(executor)
                raise StageFailed(
                    f"no row moved in any stage for {stall_timeout_seconds:g} s (stall_timeout_seconds). "
                    f"The stream waits for {stage}: {wait}. What is staged stays; run again to go on.",
                    stage,
                    "Stalled",
                )

    dataset.context.custom_execution_callback_classes = [Watch]
    dataset.context.execution_no_progress_timeout_s = -1  # Ray Data's own guard, which names no stage

    def keep_telling() -> None:
        while not stop.wait(_interval(time.monotonic() - began)):
            with contextlib.suppress(Exception):  # progress must never cost the run
                tell(dict(seen), False)

    here = contextvars.copy_context()  # a thread has none of its own, and with it other settings of Prefect's
    thread = threading.Thread(target=here.run, args=(keep_telling,), name="progress", daemon=True)
    thread.start()
    finished = False
    try:
        yield streamed
        finished = True
    finally:
        streamed.seconds = time.monotonic() - began
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):
            tell(dict(seen), finished)
