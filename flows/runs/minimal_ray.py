"""Ray of this machine's own without the services that nobody asks here, which take longer to start than Ray itself.

Without the dashboard `ray.init` still starts its server, and waits for it to import; likewise an agent with what it
would show; a monitor that scales clusters; and one that passes on what workers log. That is 3 of Ray's 7 s of CPU, on
the way to the first row. Ray 2.60 has no settings for it: these are its internals, and a test breaks when they move.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import ray._private.node
import ray._private.utils

RAYLET_SECONDS = 30.0  # then Ray says what is wrong
LOOK_SECONDS = 0.02


class LeanNode(ray._private.node.Node):
    """A head node with GCS and raylet alone."""

    def start_ray_processes(self) -> None:
        """Returns once the raylet is there. Ray would look for it once a second, while nothing else goes on."""
        super().start_ray_processes()
        deadline = time.monotonic() + RAYLET_SECONDS
        while not self.get_gcs_client().get_all_node_info() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    def start_monitor(self) -> None:
        pass

    def start_log_monitor(self) -> None:
        pass

    def start_api_server(self, **settings: Any) -> None:
        self._webui_url = None


NO_DASHBOARD = ImportError("the dashboard is not wanted")  # then Ray starts its agent as if it were not installed


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """Has `ray.init` start such a Ray in the body; it is not to be asked for the dashboard, nor for workers' logs."""
    node, error = ray._private.node.Node, ray._private.utils.get_dashboard_dependency_error
    ray._private.node.Node = LeanNode
    ray._private.utils.get_dashboard_dependency_error = lambda: NO_DASHBOARD
    try:
        yield
    finally:
        ray._private.node.Node = node
        ray._private.utils.get_dashboard_dependency_error = error
