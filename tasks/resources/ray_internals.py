"""All uses of Ray that are not public: Ray 2.60's executor of a stream, its address, and how a cluster grows.

Only the executor's private topology has the progress of an operator, and the callback's class is not exported. Ray has
no public call for the groups of nodes that an autoscaler reports, or for whether this process started Ray. It replaces
a loopback address by one that other machines reach, by a setting that it only reads when it is imported.
`tests/tasks/resources/test_ray_internals.py` fails if any of this changes.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from overnight.tasks.errors import PlanError

WRITTEN_FOR = "2.60."

if not ray.__version__.startswith(WRITTEN_FOR):
    raise PlanError(
        f"expected Ray {WRITTEN_FOR}*, whose internals progress and the stall watchdog read; found {ray.__version__}. "
        f"Install it: pip install 'ray[data]=={WRITTEN_FOR}*'."
    )

from ray._private import ray_constants, worker  # noqa: E402 - exist only in that version
from ray._private.state import state  # noqa: E402

if TYPE_CHECKING:  # it imports pandas: a second of CPU that the process of a flow does not need
    from ray.data import Dataset


@dataclass(frozen=True)
class OperatorState:
    """The completed and waiting work of one operator in a running stream."""

    name: str
    rows_in: int
    rows_out: int
    tasks: int  # that run now
    queued: int  # blocks that wait
    starting: int  # workers that are not ready yet
    is_complete: bool


def operators(executor: Any) -> Iterator[OperatorState]:
    """Yield the state of each operator of Ray Data's `executor` of a stream, in the order in which rows pass them."""
    for operator, queues in executor._topology.items():
        workers = operator.get_actor_info()
        yield OperatorState(
            name=operator.name,
            rows_in=int(operator.metrics.num_row_inputs_received),
            rows_out=int(operator.metrics.row_outputs_taken),
            tasks=operator.num_active_tasks(),
            queued=queues.total_enqueued_input_blocks(),
            starting=workers.pending + workers.restarting,
            is_complete=operator.has_completed(),
        )


class _Executors(list[Any]):
    """The executors of a stream, which stay here: Ray Data sends its settings, with the callback, to its Ray tasks."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ()


@contextlib.contextmanager
def ending_workers(dataset: "Dataset", on_step: Callable[[Any], object] = id) -> Iterator[None]:
    """End the workers of `dataset` with the body, which runs it. Call `on_step` with the executor at each step.

    After a failure, Ray Data would leave idle workers to garbage collection and wait for busy ones, with their GPUs.
    """
    from ray.data._internal.execution.execution_callback import ExecutionCallback

    executors = _Executors()

    class Watch(ExecutionCallback):  # here, because Ray Data instantiates it without arguments
        def before_execution_starts(self, executor: Any) -> None:
            shutdown = executor.shutdown

            def end(force: bool, exception: BaseException | None = None) -> None:
                shutdown(force=force or exception is not None, exception=exception)

            executor.shutdown = end
            executors.append(executor)

        def on_execution_step(self, executor: Any) -> None:
            on_step(executor)

    dataset.context.custom_execution_callback_classes = [Watch]
    try:
        yield
    finally:
        while executors:
            executors.pop().shutdown(force=True)  # does nothing after the stream's own end


def is_started_here() -> bool:
    """Return True if this process started the Ray that it uses, which then has one node and no autoscaler."""
    node = worker._global_node
    return bool(node and node.head)


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Let the processes of a Ray that starts in the body listen on 127.0.0.1 alone, as on macOS."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def joining(address: str) -> dict[str, str]:
    """Return the variables by which a new process joins the Ray at `address`, also one that began `on_loopback`."""
    variables = {"RAY_ADDRESS": address}
    if address.startswith("127.0.0.1:"):  # otherwise `ray.init` looks for it at the node's own address, without end
        variables["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return variables


def nvml() -> Any:
    """Return NVIDIA's library of the state of GPUs, as Ray contains it. It raises errors of its own without a GPU."""
    from ray._private.thirdparty import pynvml

    return pynvml


def reported_node_groups() -> list[tuple[dict[str, float], int]]:
    """Return the groups of nodes that the autoscaler reports: the resources of a node, and the most nodes.

    The number is negative if there is no limit. The autoscalers in Ray itself report nothing.
    """
    config = state.get_cluster_config()
    groups = []
    for group in config.node_group_configs if config else ():
        resources = {name: float(amount) for name, amount in group.resources.items()}
        groups.append((resources, group.max_count))
    return groups
