"""Apply a prefect.yaml's work pools, their queues and the global concurrency limits to the server.

Paused objects stay paused, and objects that the file does not name stay as they are.
"""

from collections.abc import Sequence
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound

from overnight.flows.deploy.prefect_yaml import ConcurrencyLimit, WorkPool, WorkQueue
from overnight.tasks.errors import JobError


def apply_work_pool(client: SyncPrefectClient, pool: WorkPool, keep: bool = False) -> None:
    """Create or update a pool and its queues from `pool`. With `keep`, only create what the server lacks.

    Raise `JobError` if the server has a pool of another type by that name.
    """
    try:
        found = client.read_work_pool(pool.name)
    except ObjectNotFound:
        created = WorkPoolCreate(
            name=pool.name,
            type=pool.type,
            concurrency_limit=pool.concurrency_limit,
            base_job_template=pool.base_job_template or {},
        )
        found, keep = client.create_work_pool(created), False  # the server creates a queue with other sizes
    if found.type != pool.type:
        raise JobError(
            f"work pool {pool.name}: expected type {pool.type}, found {found.type} on the server. Prefect cannot "
            "change a pool's type. Delete that pool, or name another in deployments/prefect.yaml."
        )
    wanted: dict[str, Any] = {"concurrency_limit": pool.concurrency_limit}
    if pool.base_job_template is not None:
        wanted["base_job_template"] = pool.base_job_template
    if not keep and {name: getattr(found, name) for name in wanted} != wanted:
        client.update_work_pool(pool.name, WorkPoolUpdate(**wanted))
    # In the order of priority: the server moves a queue back if another queue takes its priority.
    for queue in sorted(pool.work_queues, key=lambda queue: queue.priority):
        _apply_queue(client, pool.name, queue, keep)


def _apply_queue(client: SyncPrefectClient, pool: str, queue: WorkQueue, keep: bool) -> None:
    wanted = {"priority": queue.priority, "concurrency_limit": queue.concurrency_limit}
    found = {known.name: known for known in client.read_work_queues(work_pool_name=pool)}.get(queue.name)
    if found is None:
        client.create_work_queue(
            queue.name, priority=queue.priority, concurrency_limit=queue.concurrency_limit, work_pool_name=pool
        )
    elif not keep and {name: getattr(found, name) for name in wanted} != wanted:
        client.update_work_queue(found.id, **wanted)


def apply_limits(client: SyncPrefectClient, limits: Sequence[ConcurrencyLimit]) -> None:
    """Create or update these global concurrency limits on the Prefect server."""
    for limit in limits:
        client.upsert_global_concurrency_limit_by_name(limit.name, limit.limit)
