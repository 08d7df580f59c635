"""Apply a prefect.yaml's work pools and their queues to the server.

Paused objects stay paused, and objects that the file does not name stay as they are.
"""

from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound

from overnight.flows.deploy.prefect_yaml import WorkPool, WorkQueue
from overnight.tasks.errors import JobError


def apply_work_pool(client: SyncPrefectClient, pool: WorkPool, keep: bool = False) -> None:
    """Create or update a pool and its queues from `pool`. With `keep`, only create what the server lacks."""
    settings: dict[str, Any] = {"concurrency_limit": pool.concurrency_limit}
    if pool.base_job_template is not None:
        settings["base_job_template"] = pool.base_job_template
    try:
        existing = client.read_work_pool(pool.name)
    except ObjectNotFound:
        existing = client.create_work_pool(WorkPoolCreate(name=pool.name, type=pool.type, **settings))
        keep = False  # the server creates a queue with other sizes
    if existing.type != pool.type:
        raise JobError(
            f"work pool {pool.name}: expected type {pool.type}, found {existing.type} on the server. Prefect cannot "
            "change a pool's type. Delete that pool, or name another in deployments/prefect.yaml."
        )
    if not keep and {name: getattr(existing, name) for name in settings} != settings:
        client.update_work_pool(pool.name, WorkPoolUpdate(**settings))
    # In the order of priority: the server moves a queue back if another queue takes its priority.
    for queue in sorted(pool.work_queues, key=lambda queue: queue.priority):
        _apply_queue(client, pool.name, queue, keep)


def _apply_queue(client: SyncPrefectClient, pool: str, queue: WorkQueue, keep: bool) -> None:
    settings: dict[str, Any] = {"priority": queue.priority, "concurrency_limit": queue.concurrency_limit}
    queues = {existing.name: existing for existing in client.read_work_queues(work_pool_name=pool)}
    existing = queues.get(queue.name)
    if existing is None:
        client.create_work_queue(queue.name, work_pool_name=pool, **settings)
    elif not keep and {name: getattr(existing, name) for name in settings} != settings:
        client.update_work_queue(existing.id, **settings)
