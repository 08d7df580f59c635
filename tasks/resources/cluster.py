"""The connected Ray cluster: its nodes, the nodes that autoscaling may add, and its current use."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ray

from overnight.tasks.resources.needs import Nodes, amount_of
from overnight.tasks.resources.node_types import NodeType, addable_nodes
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.ray_internals import is_started_here, reported_node_groups

IDLE = 4  # the `DeathReason` of a node that the autoscaler ended because it had nothing to do


def read_nodes() -> list[dict[str, float]]:
    """Return the resources of each node alive."""
    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def read_addable_nodes(cluster: Mapping[str, NodeType], nodes: Nodes) -> list[dict[str, float]]:
    """Return the resources of each node that the autoscaler may start beside the `nodes` alive.

    `cluster` is the job's setting.
    """
    return [] if is_started_here() else addable_nodes(reported_node_groups(), cluster, nodes)


def lost_nodes(alive: Collection[str], nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a phrase about each node that has ended since it was `alive`, by its id, and had something to do.

    `nodes` are the nodes of the cluster now, also dead ones, as `ray.nodes()` returns them.
    """
    nodes = [node for node in nodes if node["NodeID"] in alive]
    if alive and not nodes:
        return ["no node of the attempt before is left: its Ray head ended, or this attempt runs on another cluster"]
    phrases = []
    for node in nodes:
        if node["Alive"] or node["DeathReason"] == IDLE:
            continue
        name, address = node["NodeName"], node["NodeManagerAddress"]
        if name != address:
            name = f"{name} at {address}"
        reason = node["DeathReasonMessage"] or "no reason"
        phrases.append(f"node {name} ended ({reason}); other nodes take its work")
    return phrases


def missing_now(plan: Plan) -> str | None:
    """Return a phrase about a resource that the plan needs and other runs use now, or None if nothing is missing."""
    available, total = ray.available_resources(), ray.cluster_resources()
    for name, amount in plan.needs().items():
        free = available.get(name, 0)
        if free + 1e-9 < amount <= total.get(name, 0) + 1e-9:
            return f"{amount_of(name, amount)}; {amount_of(name, free)} of {total[name]:g} free"
    return None
