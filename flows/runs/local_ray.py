"""Notice that the Ray of this machine has ended, before Ray itself ends this process.

Ray 2.60 waits a minute for its GCS (the process that knows nodes and actors), and then ends the driver without a word
to the caller: no failure would be recorded.
"""

import socket

import ray

from overnight.tasks.errors import WorkerLost
from overnight.tasks.resources.ray_internals import is_started_here

REFUSALS = 3  # in a row, one per look, because a single one may have another cause
CONNECT_SECONDS = 1.0


class RayEnded(WorkerLost):
    """The Ray that this process started has ended. Another try in this process cannot pass."""

    stage = ""  # `explain` fills in the stage during which it ended


def local_ray() -> "LocalRay":
    """Return the GCS that this process started; with the Ray of a cluster, return one that is never checked."""
    return LocalRay(ray.get_runtime_context().gcs_address if is_started_here() else "")


class LocalRay:
    """The GCS at `address`, and how often it refused a connection in a row. An empty address is never checked."""

    def __init__(self, address: str) -> None:
        self._address, self._refusals = address, 0

    def check(self) -> None:
        """Raise `RayEnded` if the GCS has refused the last connections. Call this once a second."""
        if not self._address:
            return
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            self._refusals = 0
        except ConnectionRefusedError:
            self._refusals += 1
        except OSError:
            return  # a busy machine
        if self._refusals >= REFUSALS:
            raise RayEnded(
                f"the Ray of this machine has ended: expected its GCS process at {self._address}, found no process "
                "that listens. The usual cause is too little memory. Staged parts are kept; run again to resume.",
                error_type="RayEnded",
            )
