"""What is read of Ray's internals: this test breaks when they move, and another version of Ray is refused."""

import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.data
from ray.core.generated import autoscaler_pb2

from overnight.tasks.errors import PlanError
from overnight.tasks.resources import ray_internals
from overnight.tasks.resources.cluster import read_addable_nodes
from overnight.tasks.resources.node_types import NodeType, addable_nodes
from overnight.tasks.resources.ray_internals import OperatorState, ending_workers, nvml, operators, reported_node_groups

LOOPBACK = """
from ray._private import services
from overnight.tasks.resources.ray_internals import on_loopback

before = services.resolve_ip_for_localhost("127.0.0.1")
with on_loopback():
    print(services.resolve_ip_for_localhost("127.0.0.1"), services.get_node_ip_address())
assert services.resolve_ip_for_localhost("127.0.0.1") == before
"""


def test_a_ray_that_starts_on_the_loopback_has_its_address() -> None:
    """In a process without a Ray."""
    done = subprocess.run([sys.executable, "-c", LOOPBACK], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["127.0.0.1", "127.0.0.1"], done.stderr


class Model:
    """Fails for batches from 2 on, after all workers have had one; batch 1 may run without an end."""

    def __init__(self, hangs: bool = False) -> None:
        self._hangs = hangs

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._hangs and batch["id"][0] == 1:
            threading.Event().wait()
        if batch["id"][0] >= 2:
            raise ValueError("not this batch")
        return batch


def hangs(batch: dict[str, Any]) -> dict[str, Any]:
    if batch["id"][0] >= 1:
        time.sleep(3600)
    return batch


def numbers(count: int = 4) -> ray.data.Dataset:
    rows = [{"id": number} for number in range(count)]
    return ray.data.from_items(rows, override_num_blocks=count)  # without a Ray task, which would need a CPU


def two_workers(dataset: ray.data.Dataset, model: type = Model, **settings: Any) -> ray.data.Dataset:
    workers = ray.data.ActorPoolStrategy(size=2)
    return dataset.map_batches(model, batch_size=1, num_cpus=1, compute=workers, fn_constructor_kwargs=settings)


def read_one_and_fail(dataset: ray.data.Dataset) -> None:
    for _ in dataset.iter_batches(batch_size=1, prefetch_batches=0):
        raise ValueError("the reader, not the stream")


def hanging_tasks() -> ray.data.Dataset:
    return numbers(3).map_batches(hangs, batch_size=1, num_cpus=0.5).map_batches(Model, concurrency=1, num_cpus=1)


End = tuple[Callable[[], ray.data.Dataset], Callable[[ray.data.Dataset], object], type[Exception] | None]
ENDS: dict[str, End] = {
    "success": (lambda: two_workers(numbers(2)), ray.data.Dataset.materialize, None),
    "a failed call beside one that hangs": (
        lambda: two_workers(numbers(), hangs=True), ray.data.Dataset.materialize, ValueError,
    ),
    "a reader that fails while Ray tasks hang": (hanging_tasks, read_one_and_fail, ValueError),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_the_workers_of_a_stream_end_with_it_while_its_error_is_kept(ray_session: None, end: str) -> None:
    make, run, error_type = ENDS[end]
    dataset, error = make(), None
    dataset.context.raise_original_map_exception = True
    try:
        with ending_workers(dataset):
            run(dataset)
    except Exception as raised:
        error = raised  # with its traceback, as Prefect keeps it while a task waits for its next try
    assert error_type is None or isinstance(error, error_type)
    deadline = time.monotonic() + 20
    while (free := ray.available_resources().get("CPU", 0)) < 2:
        assert time.monotonic() < deadline, f"{free} of 2 CPUs are free after {end}"
        time.sleep(0.1)


class Executor:
    """Remembers how it is shut down, and cannot travel to another process."""

    def __init__(self) -> None:
        self.ends: list[tuple[bool, BaseException | None]] = []
        self.lock = threading.Lock()

    def shutdown(self, force: bool, exception: BaseException | None = None) -> None:
        self.ends.append((force, exception))


def test_a_stream_ends_gently_only_after_success_and_its_settings_travel_without_its_executor() -> None:
    dataset: Any = SimpleNamespace(context=ray.data.DataContext.get_current().copy())
    executor, error = Executor(), ValueError("no")
    with ending_workers(dataset):
        [watch] = dataset.context.custom_execution_callback_classes
        watch().before_execution_starts(executor)
        assert ray.cloudpickle.loads(ray.cloudpickle.dumps(dataset.context))
        executor.shutdown(force=False)
        executor.shutdown(force=False, exception=error)
        assert executor.ends == [(False, None), (True, error)]
    assert executor.ends[2:] == [(True, None)]


def test_operators_of_a_stream_are_seen_with_their_rows_in_order(ray_session: None) -> None:
    seen: list[list[OperatorState]] = []

    dataset = ray.data.range(300, override_num_blocks=3).map_batches(lambda batch: batch, num_cpus=0.5)
    with ending_workers(dataset, lambda executor: seen.append(list(operators(executor)))):
        assert dataset.count() == 300
    last = seen[-1][-1]
    assert "MapBatches" in " ".join(state.name for state in seen[-1])
    assert (last.is_complete, last.tasks, last.queued, last.starting) == (True, 0, 0, 0)
    assert max(state.rows_out for state in seen[-1]) == 300
    assert any(state.tasks for states in seen for state in states)


def test_the_groups_that_an_autoscaler_reports_are_read(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reported_node_groups() == [], "the tests' cluster does not scale"
    groups = [{"resources": {"CPU": 8, "GPU": 1}, "max_count": 4}, {"resources": {"CPU": 2}, "max_count": -1}]
    config = autoscaler_pb2.ClusterConfig(node_group_configs=groups)
    monkeypatch.setattr(ray_internals.state, "get_cluster_config", lambda: config)
    assert reported_node_groups() == [({"CPU": 8.0, "GPU": 1.0}, 4), ({"CPU": 2.0}, -1)]
    assert len(addable_nodes(reported_node_groups(), {}, [])) == 4 + 1000


def test_a_ray_that_this_process_started_does_not_grow(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    t4 = {"t4": NodeType(resources={"CPU": 8, "GPU": 1}, max_workers=2)}
    assert read_addable_nodes(t4, []) == []
    monkeypatch.setattr(ray_internals.worker._global_node, "head", False)  # as if it had connected to a cluster
    assert len(read_addable_nodes(t4, [])) == 2


def test_ray_contains_the_library_of_the_state_of_gpus() -> None:
    library = nvml()
    for name in ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo"):
        assert callable(getattr(library, name))


def test_another_version_of_ray_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "2.61.0")
    with pytest.raises(PlanError, match=r"expected Ray 2\.60\.\*.*found 2\.61\.0.*pip install"):
        importlib.reload(ray_internals)
