"""The connected Ray cluster: what it has, what it may grow to, and what of it is in use.

Ray 2.60 has no public call for the autoscaler's limits; the private one answers None where there are none.
"""

from collections.abc import Mapping

import ray
from ray._private.state import state

from overnight.tasks.resources.plan import Plan, amount_of


def read_cluster() -> tuple[list[dict[str, float]], dict[str, float]]:
    """(resources of each node alive, what the cluster may autoscale to), by Ray's resource names."""
    nodes = [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    limits: Mapping[str, float] | None = state.get_max_resources_from_cluster_config()
    return nodes, {name: float(amount) for name, amount in (limits or {}).items()}


def missing_now(plan: Plan) -> str | None:
    """What the plan needs that is in use at this moment, in words; None when it can start."""
    available, total = ray.available_resources(), ray.cluster_resources()
    for name, amount in plan.needs().items():
        if available.get(name, 0) + 1e-9 < amount and total.get(name, 0) + 1e-9 >= amount:
            return f"{amount_of(name, amount)}; {amount_of(name, available.get(name, 0))} of {total[name]:g} free"
    return None
