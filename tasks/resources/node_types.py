"""The nodes that a cluster's autoscaler may start, one by one, with the types of nodes that it offers.

A plan must know them: four nodes of one GPU cannot run a worker that needs four. Ray's own autoscalers do not publish
their types. So they come from the job's `cluster`, or from `max_workers` and `available_node_types` of the file that
`OVERNIGHT_CLUSTER` names. This is Ray's cluster configuration, such as `~/ray_bootstrap_config.yaml` on a head node.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from overnight.tasks.config.settings import Settings
from overnight.tasks.errors import JobError
from overnight.tasks.resources.needs import Nodes, Resources

VARIABLE = "OVERNIGHT_CLUSTER"
UNLIMITED = 1000  # nodes of a group for which the autoscaler reports no limit
MOST_WORKERS = 2  # Ray's default of max_workers in a cluster configuration


class NodeType(Settings):
    """A type of nodes that the autoscaler may start, as in `available_node_types` of Ray's cluster configuration."""

    resources: Annotated[
        dict[str, Annotated[float, Field(gt=0)]],
        Field(
            min_length=1,
            description="What each node has, by Ray's names: CPU, GPU, memory (bytes), accelerator_type:T4, your own.",
            examples=[{"CPU": 8, "GPU": 1, "accelerator_type:T4": 1}],
        ),
    ]
    max_workers: Annotated[int, Field(ge=0, description="The most nodes of this type.")]


def addable_nodes(
    groups: Iterable[tuple[Resources, int]], cluster: Mapping[str, NodeType], nodes: Nodes
) -> list[dict[str, float]]:
    """Return the resources of each node that may still start, beside the `nodes` alive.

    The types of nodes are the `groups` that the autoscaler reports, otherwise the configured types.
    """
    types = []
    for resources, most in groups:
        limit = most if most >= 0 else UNLIMITED
        types.append(NodeType(resources=dict(resources), max_workers=limit))
    return addable_of_types(types or configured_types(cluster).values(), nodes)


def configured_types(cluster: Mapping[str, NodeType]) -> dict[str, NodeType]:
    """Return the node types of the job's `cluster`, or of the file that `OVERNIGHT_CLUSTER` names."""
    path = os.environ.get(VARIABLE)
    if cluster or not path:
        return dict(cluster)
    return _types_in(Path(path).expanduser())


def addable_of_types(types: Iterable[NodeType], nodes: Nodes) -> list[dict[str, float]]:
    """Return the resources of each node that may still start: of each type, its maximum without the `nodes` alive."""
    new_nodes = []
    for kind in types:
        alive = sum(1 for node in nodes if _is_of(kind, node))
        for _ in range(kind.max_workers - alive):
            new_nodes.append(dict(kind.resources))
    return new_nodes


def _types_in(path: Path) -> dict[str, NodeType]:
    message = f"{VARIABLE}: expected the path of a Ray cluster configuration with available_node_types"
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise JobError(f"{message}, found {path}: {error}") from error
    types = data.get("available_node_types") if isinstance(data, dict) else None
    if not isinstance(types, dict) or not all(isinstance(kind, dict) for kind in types.values()):
        raise JobError(f"{message}, found none in {path}.")
    most = data.get("max_workers", MOST_WORKERS)
    try:
        return {name: _node_type(kind, most) for name, kind in types.items() if kind.get("max_workers", most)}
    except ValidationError as error:
        first = error.errors()[0]
        raise JobError(
            f"{message}, each with the resources of its nodes; found in {path}: "
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}."
        ) from error


def _node_type(kind: Mapping[str, Any], most: Any) -> NodeType:
    resources = {name: amount for name, amount in (kind.get("resources") or {}).items() if amount}
    return NodeType.model_validate({"resources": resources, "max_workers": kind.get("max_workers", most)})


def _is_of(kind: NodeType, node: Resources) -> bool:
    """Return True if a node has exactly the CPUs, GPUs and own resources of a type, and its accelerators."""
    accelerators = {name for name in kind.resources if name.startswith("accelerator_type:")}
    return _own(node) == _own(kind.resources) and accelerators <= node.keys()


def _own(resources: Resources) -> dict[str, float]:
    """Return the resources without the ones that Ray measures on a node or gives to each node."""
    own = {}
    for name, amount in resources.items():
        if name not in ("memory", "object_store_memory") and not name.startswith(("node:", "accelerator_type:")):
            own[name] = amount
    return own
