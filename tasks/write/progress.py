"""Live progress of the stream, stage by stage, as Prefect progress artifacts.

Ray Data calls `on_execution_step` at every step; what an operator has done is only found in the executor's private
topology (Ray 2.60; `tests/tasks/write/test_progress.py` breaks when it moves). A thread sends it on, for an update
takes far longer than a step.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import ray.data
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from ray.data._internal.execution.execution_callback import ExecutionCallback

from tasks.artifacts import artifact_key
from tasks.run_directory import Run

STAGES = ("ingest", "preprocess", "infer", "write")
OPERATORS = {"ingest": "Ingest", "preprocess": "run_steps", "infer": "Worker", "write": "Write"}
SECONDS_BETWEEN = 1.0


@dataclass
class Seen:
    """Rows that each stage has finished so far."""

    rows: dict[str, int]
    finished: bool = False


def read_topology(executor: Any) -> dict[str, int]:
    """Rows finished by stage. A fused operator counts for each stage in it; of several models the last counts."""
    rows: dict[str, int] = {}
    for operator in executor._topology:
        name = operator.name
        for stage, mark in OPERATORS.items():
            if mark in name:
                done = operator.num_output_rows_total() or 0
                if stage == "write":
                    done = operator.metrics.num_row_inputs_received
                rows[stage] = int(done)
    return rows


@contextlib.contextmanager
def live_progress(dataset: ray.data.Dataset, run: Run, total_rows: int | None) -> Iterator[Seen]:
    """Shows progress while the body runs the dataset. `total_rows`: those left to do, None if only reading tells."""
    seen, stop = Seen({}), threading.Event()

    class Watch(ExecutionCallback):  # Ray instantiates it without arguments, hence here
        def on_execution_step(self, executor: Any) -> None:
            seen.rows = read_topology(executor)

    dataset.context.custom_execution_callback_classes = [Watch]
    artifacts = {stage: _create(run, stage, total_rows) for stage in STAGES}

    def send() -> None:
        while not stop.wait(SECONDS_BETWEEN):
            with contextlib.suppress(Exception):  # progress must never cost the run
                for stage, artifact in artifacts.items():
                    _update(artifact, stage, seen, total_rows)

    thread = threading.Thread(target=send, name="progress", daemon=True)
    thread.start()
    try:
        yield seen
        seen.finished = True
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):
            for stage, artifact in artifacts.items():
                _update(artifact, stage, seen, total_rows)


def _create(run: Run, stage: str, total_rows: int | None) -> UUID:
    return create_progress_artifact(  # type: ignore[return-value]
        progress=0.0,
        key=artifact_key(run.job, f"progress-{stage}"),
        description=_describe(stage, 0, total_rows),
    )


def _update(artifact: UUID, stage: str, seen: Seen, total_rows: int | None) -> None:
    done = seen.rows.get(stage, 0)
    share = 100.0 if seen.finished else min(99.9, 100.0 * done / total_rows) if total_rows else 0.0
    update_progress_artifact(artifact, progress=share, description=_describe(stage, done, total_rows))


def _describe(stage: str, done: int, total_rows: int | None) -> str:
    return f"{stage}: {done:,} of {total_rows:,} rows" if total_rows is not None else f"{stage}: {done:,} rows"
