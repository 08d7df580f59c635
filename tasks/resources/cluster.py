"""The connected Ray cluster: its resources, its limits for autoscaling, and its current use."""

import ray

from overnight.tasks.resources.plan import Plan, amount_of
from overnight.tasks.resources.ray_internals import autoscaling_limits


def read_cluster() -> tuple[list[dict[str, float]], dict[str, float]]:
    """Return the resources of each node alive, and the autoscaler's limits, both as Ray's resource name -> amount.

    The limits are empty if the cluster does not scale.
    """
    nodes = [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    return nodes, autoscaling_limits()


def missing_now(plan: Plan) -> str | None:
    """Return a phrase about a resource that the plan needs and other runs use now, or None if nothing is missing."""
    available, total = ray.available_resources(), ray.cluster_resources()
    for name, amount in plan.needs().items():
        if available.get(name, 0) + 1e-9 < amount and total.get(name, 0) + 1e-9 >= amount:
            return f"{amount_of(name, amount)}; {amount_of(name, available.get(name, 0))} of {total[name]:g} free"
    return None
