"""The nodes that an autoscaler may still start, from the types that it offers."""

from pathlib import Path

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.resources.node_types import VARIABLE, NodeType, addable_of_types, configured_types

T4 = NodeType(resources={"CPU": 8, "GPU": 1, "accelerator_type:T4": 1, "memory": 2**35}, max_workers=3)
CPUS = NodeType(resources={"CPU": 8}, max_workers=2)
HEAD = {"CPU": 2.0, "memory": 9e9, "object_store_memory": 4e9, "node:10.0.0.1": 1.0, "node:__internal_head__": 1.0}
CONFIGURATION = """
cluster_name: night
max_workers: 6
provider: {type: aws, region: us-east-1}
head_node_type: head
available_node_types:
  head: {resources: {}, node_config: {InstanceType: m5.large}, max_workers: 0}
  t4: {resources: {CPU: 8, GPU: 1, "accelerator_type:T4": 1}, node_config: {}, min_workers: 0, max_workers: 3}
  cpus: {resources: {CPU: 8, GPU: 0}, node_config: {}}
"""


def test_each_type_adds_its_maximum_without_the_nodes_alive_of_it() -> None:
    assert addable_of_types([T4, CPUS], [HEAD]) == [T4.resources] * 3 + [CPUS.resources] * 2
    alive = {"CPU": 8.0, "GPU": 1.0, "accelerator_type:T4": 1.0, "memory": 3e10, "node:10.0.0.2": 1.0}
    assert addable_of_types([T4, CPUS], [HEAD, alive]) == [T4.resources] * 2 + [CPUS.resources] * 2
    other = alive | {"accelerator_type:L4": 1.0}
    del other["accelerator_type:T4"]
    assert len(addable_of_types([T4], [HEAD, other])) == 3
    assert addable_of_types([T4], [HEAD, *[alive] * 5]) == []


def test_a_resource_whose_name_begins_with_memory_tells_types_apart() -> None:
    large = NodeType(resources={"CPU": 8, "memory_optimized": 1}, max_workers=2)
    assert len(addable_of_types([large], [{"CPU": 8.0, "memory": 9e9}])) == 2


def test_the_file_of_the_variable_is_ray_s_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured_types({}) == {}
    (tmp_path / "cluster.yaml").write_text(CONFIGURATION)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cluster.yaml"))
    found = configured_types({})
    assert {name: kind.max_workers for name, kind in found.items()} == {"t4": 3, "cpus": 6}
    assert found["cpus"].resources == {"CPU": 8}
    assert configured_types({"mine": CPUS}) == {"mine": CPUS}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "found none in"),
        ("{available_node_types: [a]}", "found none in"),
        ("{available_node_types: {a: 1}}", "found none in"),
        ("{available_node_types: {a: {resources: {}, max_workers: 1}}}", "resources: "),
        ("{available_node_types: {a: {resources: {CPU: -1}, max_workers: 1}}}", "resources.CPU: "),
        ("a: [", "cluster.yaml: while parsing"),
        (None, "cluster.yaml: .*No such file"),
    ],
    ids=str,
)
def test_a_file_without_types_is_refused(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "cluster.yaml").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cluster.yaml"))
    with pytest.raises(JobError, match=rf"OVERNIGHT_CLUSTER: expected the path of a Ray cluster .*{message}"):
        configured_types({})
