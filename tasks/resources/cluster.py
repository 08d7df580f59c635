"""The connected Ray cluster: what it has, what it may grow to, and what of it is in use."""

import ray

from overnight.tasks.resources.plan import Plan, amount_of
from overnight.tasks.resources.ray_internals import autoscaling_limits


def read_cluster() -> tuple[list[dict[str, float]], dict[str, float]]:
    """(resources of each node alive, what the cluster may autoscale to), by Ray's resource names."""
    nodes = [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    return nodes, autoscaling_limits()


def missing_now(plan: Plan) -> str | None:
    """What the plan needs that is in use at this moment, in words; None when it can start."""
    available, total = ray.available_resources(), ray.cluster_resources()
    for name, amount in plan.needs().items():
        if available.get(name, 0) + 1e-9 < amount and total.get(name, 0) + 1e-9 >= amount:
            return f"{amount_of(name, amount)}; {amount_of(name, available.get(name, 0))} of {total[name]:g} free"
    return None
