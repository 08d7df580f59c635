"""What is read of Ray's internals: this test breaks when they move, and another version of Ray is refused."""

import importlib
from typing import Any

import pytest
import ray
import ray.data
from ray.core.generated import autoscaler_pb2

from overnight.tasks.errors import PlanError
from overnight.tasks.resources import ray_internals
from overnight.tasks.resources.cluster import read_nodes_to_come
from overnight.tasks.resources.node_types import NodeType, to_come
from overnight.tasks.resources.ray_internals import (
    ExecutionCallback,
    OperatorState,
    operators,
    reported_node_groups,
)


def test_operators_of_a_stream_are_seen_with_their_rows_in_order(ray_session: None) -> None:
    seen: list[list[OperatorState]] = []

    class Watch(ExecutionCallback):
        def on_execution_step(self, executor: Any) -> None:
            seen.append(list(operators(executor)))

    dataset = ray.data.range(300, override_num_blocks=3).map_batches(lambda batch: batch, num_cpus=0.5)
    dataset.context.custom_execution_callback_classes = [Watch]
    assert dataset.count() == 300
    last = seen[-1][-1]
    assert "MapBatches" in " ".join(state.name for state in seen[-1])
    assert (last.is_complete, last.tasks, last.queued, last.starting) == (True, 0, 0, 0)
    assert max(state.rows_out for state in seen[-1]) == 300
    assert any(state.tasks for states in seen for state in states)


def test_a_cluster_that_does_not_scale_reports_no_groups(ray_session: None) -> None:
    assert reported_node_groups() == []


def test_the_groups_that_an_autoscaler_reports_are_read(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [{"resources": {"CPU": 8, "GPU": 1}, "max_count": 4}, {"resources": {"CPU": 2}, "max_count": -1}]
    config = autoscaler_pb2.ClusterConfig(node_group_configs=groups)
    monkeypatch.setattr(ray_internals.state, "get_cluster_config", lambda: config)
    assert reported_node_groups() == [({"CPU": 8.0, "GPU": 1.0}, 4), ({"CPU": 2.0}, -1)]
    assert len(to_come(reported_node_groups(), {}, [])) == 4 + 1000


def test_a_ray_that_this_process_started_does_not_grow(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    t4 = {"t4": NodeType(resources={"CPU": 8, "GPU": 1}, max_workers=2)}
    assert read_nodes_to_come(t4, []) == []
    monkeypatch.setattr(ray_internals.worker._global_node, "head", False)  # as if it had connected to a cluster
    assert len(read_nodes_to_come(t4, [])) == 2


def test_another_version_of_ray_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "2.61.0")
    with pytest.raises(PlanError, match=r"expected Ray 2\.60\.\*.*found 2\.61\.0.*pip install"):
        importlib.reload(ray_internals)
