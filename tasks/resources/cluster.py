"""The connected Ray cluster: its nodes, the nodes that autoscaling may add, and its current use."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ray

from overnight.tasks.resources.node_types import NodeType, to_come
from overnight.tasks.resources.plan import Plan, amount_of
from overnight.tasks.resources.ray_internals import is_started_here, reported_node_groups

IDLE = 4  # the `DeathReason` of a node that the autoscaler ended because it had nothing to do


def read_nodes() -> list[dict[str, float]]:
    """Return the resources of each node alive, as Ray's resource name -> amount."""
    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def read_nodes_to_come(cluster: Mapping[str, NodeType], nodes: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return the resources of each node that the cluster's autoscaler may still start; empty if it starts none.

    `cluster` is the job's setting, and `nodes` has the resources of each node alive. Raise `JobError` for a file of
    `OVERNIGHT_CLUSTER` that cannot be read.
    """
    return [] if is_started_here() else to_come(reported_node_groups(), cluster, nodes)


def lost_nodes(alive: Collection[str], nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a phrase about each node that has ended, with its name, its address and the reason that Ray gives.

    A node that the autoscaler ended because it had nothing to do is not lost. If the cluster knows none of the nodes in
    `alive`, it is another cluster or has a new head, and the phrase is about the whole cluster.

    Args:
        alive: The ids of the nodes that were alive before.
        nodes: The nodes that the cluster knows now, dead ones included, as `ray.nodes()` returns them.
    """
    known = [node for node in nodes if node["NodeID"] in alive]
    if alive and not known:
        return ["no node of the attempt before is left: its Ray head ended, or this attempt runs on another cluster"]
    return [
        f"node {_name(node)} ended ({node['DeathReasonMessage'] or 'no reason'}); other nodes take its work"
        for node in known
        if not node["Alive"] and node["DeathReason"] != IDLE
    ]


def _name(node: Mapping[str, Any]) -> str:
    name, address = node["NodeName"], node["NodeManagerAddress"]
    return f"{name} at {address}" if name != address else str(name)


def missing_now(plan: Plan) -> str | None:
    """Return a phrase about a resource that the plan needs and other runs use now, or None if nothing is missing."""
    available, total = ray.available_resources(), ray.cluster_resources()
    for name, amount in plan.needs().items():
        if available.get(name, 0) + 1e-9 < amount and total.get(name, 0) + 1e-9 >= amount:
            return f"{amount_of(name, amount)}; {amount_of(name, available.get(name, 0))} of {total[name]:g} free"
    return None
