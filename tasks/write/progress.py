"""Live progress of the stream, stage by stage.

Ray Data calls `on_execution_step` at every step; what an operator has done is only found in the executor's private
topology, and the callback's class is not exported (Ray 2.60; `tests/tasks/write/test_progress.py` breaks when either
moves). A thread passes it on, for telling a server takes far longer than a step.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ray.data
from ray.data._internal.execution.execution_callback import ExecutionCallback

OPERATORS = {"ingest": "Ingest", "preprocess": "run_steps", "infer": "Worker", "write": "Write"}
SECONDS_BETWEEN = 1.0


def read_topology(executor: Any) -> dict[str, int]:
    """Rows finished by stage. A fused operator counts for each stage in it; of several models the last counts."""
    rows: dict[str, int] = {}
    for operator in executor._topology:
        for stage, mark in OPERATORS.items():
            if mark in operator.name and stage == "write":
                rows[stage] = int(operator.metrics.num_row_inputs_received)
            elif mark in operator.name:
                rows[stage] = int(operator.metrics.row_outputs_taken)
    return rows


@contextlib.contextmanager
def follow(dataset: ray.data.Dataset, tell: Callable[[dict[str, int], bool], None]) -> Iterator[None]:
    """Calls `tell(rows finished by stage, whether all is done)` about once a second while the body runs `dataset`."""
    seen: dict[str, int] = {}
    stop = threading.Event()

    class Watch(ExecutionCallback):  # Ray instantiates it without arguments, hence here
        def on_execution_step(self, executor: Any) -> None:
            seen.update(read_topology(executor))

    dataset.context.custom_execution_callback_classes = [Watch]

    def keep_telling() -> None:
        while not stop.wait(SECONDS_BETWEEN):
            with contextlib.suppress(Exception):  # progress must never cost the run
                tell(dict(seen), False)

    thread = threading.Thread(target=keep_telling, name="progress", daemon=True)
    thread.start()
    finished = False
    try:
        yield
        finished = True
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):
            tell(dict(seen), finished)
