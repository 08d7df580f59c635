"""Record each node of the cluster that ends during a run: a line in the receipt's incidents and in the run's log.

The ids of the nodes alive are in a file of the generation while an attempt runs. If the process of the attempt dies, as
it does with Ray's head, the file stays, and the next attempt records the nodes that have ended.
"""

import contextlib
import threading
from collections.abc import Iterator

import ray

from overnight.flows.runs.background import in_background
from overnight.flows.runs.current_task import stage
from overnight.tasks.resources.cluster import lost_nodes
from overnight.tasks.resources.ray_internals import is_started_here
from overnight.tasks.state.run import Run, now, read_json, write_json
from overnight.tasks.workers import supervisor

SECONDS_BETWEEN = 1.0


@contextlib.contextmanager
def lost_nodes_recorded(run: Run) -> Iterator[None]:
    """Record each node that ends while the body runs, with the time at which Ray reports its end.

    Do nothing with a Ray of this process, whose only node is this machine.
    """
    with contextlib.nullcontext() if is_started_here() else in_background(_follow, run):
        yield


def _follow(run: Run, stop: threading.Event) -> None:
    before: list[str] | None = None
    is_last = False
    while not is_last:
        is_last = stop.wait(SECONDS_BETWEEN)
        with contextlib.suppress(Exception):  # a record that fails must not fail the run
            if before is None:  # the nodes of an attempt whose process died
                before = (read_json(run.nodes) or {"alive": []})["alive"]
            nodes = ray.nodes()
            alive = [node["NodeID"] for node in nodes if node["Alive"]]
            for lost in lost_nodes(before, nodes):
                supervisor.report(run, stage(), f"{lost} (seen at {now()})")
            if alive != before:
                write_json(run.nodes, {"alive": alive})
            before = alive
    with contextlib.suppress(Exception):
        run.nodes.remove()
