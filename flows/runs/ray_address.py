"""Check the address of a Ray cluster before Prefect or Ray starts.

A run is a driver: Ray Data and Overnight read the state of Ray's core in this process. A process that uses Ray Client
(`ray://`) has no such core, and the dashboard (`http://`) only takes jobs.
"""

import os
import sys

from overnight.tasks.errors import JobError


def check_ray_address(address: str | None = None, where: str = "RAY_ADDRESS") -> None:
    """Raise `JobError` for an address that a run cannot use, or if this process uses Ray Client already."""
    if address is None:
        client = sys.modules.get("ray.util.client")  # Ray takes seconds to import
        if client and client.ray.is_connected():
            address, where = "ray://", "ray.init"
        else:
            address = os.environ.get("RAY_ADDRESS", "")
    if "://" in address:
        raise JobError(
            f"{where}: expected HOST:PORT of the cluster's GCS, such as ray-head:6379, found {address}. Submit the "
            "command to the cluster with `ray job submit -- overnight run JOB.yaml`, or run it on a node of the "
            "cluster with HOST:6379."
        )
