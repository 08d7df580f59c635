"""Share GPUs between runs: a run holds one slot of Prefect's global limit `overnight-gpu` for each GPU of its plan.

Without that limit on the server, runs do not wait. If a process dies, its slots come back when Prefect's lease on them
ends: within a minute, and at the server's next check for such leases.
"""

import contextlib
import time
from collections.abc import Iterator

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from overnight.tasks.errors import OvernightError
from overnight.tasks.resources.waiting import Wait

LIMIT = "overnight-gpu"
LEASE_SECONDS = 60.0  # the minimum of Prefect 3.9
WAIT_SECONDS = 5.0


@contextlib.contextmanager
def gpus_held(gpus: int, busy_timeout_seconds: float | None = None) -> Iterator[None]:
    """Wait for this number of slots of Prefect's limit `overnight-gpu`, and hold them while the body runs."""
    with contextlib.ExitStack() as slots:
        try:
            _take(slots, gpus, Wait(get_run_logger().warning, busy_timeout_seconds))
        except OvernightError:
            raise
        except Exception as error:
            get_run_logger().warning("this run holds no slots of %s: %s", LIMIT, error)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # slots that cannot be released expire
                slots.close()


def _take(slots: contextlib.ExitStack, gpus: int, wait: Wait) -> None:
    while gpus and (size := _size()) is not None:
        count = min(gpus, size)
        try:
            if not size:
                time.sleep(WAIT_SECONDS)
                raise TimeoutError  # a limit of 0 slots lets no run start
            slots.enter_context(concurrency(LIMIT, count, timeout_seconds=WAIT_SECONDS, lease_duration=LEASE_SECONDS))
            return
        except TimeoutError:
            wait.for_others(f"{count} of the {size} slots of {LIMIT}")


def _size() -> int | None:
    """Return the total number of slots, or None if the limit does not exist or is off."""
    with get_client(sync_client=True) as client:
        try:
            limit = client.read_global_concurrency_limit_by_name(LIMIT)
        except ObjectNotFound:
            return None
    return limit.limit if limit.active else None
