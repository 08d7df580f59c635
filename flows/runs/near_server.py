"""Keep Prefect's tasks on the node of a Prefect server that other nodes of the Ray cluster cannot reach."""

from typing import Any
from urllib.parse import urlsplit

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def near_server(api_url: str) -> dict[str, Any]:
    """Return the options of a Ray task that keep it on this node if other nodes cannot reach the Prefect server.

    `overnight run` on a cluster may have started that server here, on the loopback address.
    """
    if urlsplit(api_url).hostname not in LOOPBACK:
        return {}
    here = ray.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}
