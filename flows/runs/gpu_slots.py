"""The GPUs that all runs share: a run holds as many slots of Prefect's global limit `overnight-gpu` as it takes GPUs.

Where there is no such limit, nothing is limited. The slots of a process that died come back when Prefect's lease on
them ends: within a minute, and the server's next look for such leases.
"""

import contextlib
import time
from collections.abc import Iterator

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

LIMIT = "overnight-gpu"
LEASE_SECONDS = 60.0  # the least that Prefect 3.9 takes
WAIT_SECONDS = 5.0
SECONDS_BETWEEN_WARNINGS = 60.0


@contextlib.contextmanager
def gpus_held(gpus: int) -> Iterator[None]:
    """Holds slots for so many GPUs while the body runs, and waits for them before, saying so.

    More than the limit has in all are the whole limit. A Prefect server that is away costs no run.
    """
    with contextlib.ExitStack() as held:
        try:
            _take(held, gpus)
        except Exception as error:
            get_run_logger().warning("this run holds no slots of %s: %s", LIMIT, error)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # what cannot be given back runs out
                held.close()


def _take(held: contextlib.ExitStack, gpus: int) -> None:
    next_warning = 0.0
    while gpus and (size := _size()) is not None:
        try:
            if not size:
                time.sleep(WAIT_SECONDS)
                raise TimeoutError  # of no slots nobody may take one
            slots = min(gpus, size)
            held.enter_context(concurrency(LIMIT, slots, timeout_seconds=WAIT_SECONDS, lease_duration=LEASE_SECONDS))
            return
        except TimeoutError:
            if time.monotonic() >= next_warning:
                get_run_logger().warning("waiting for %d of the %d slots of %s", min(gpus, size), size, LIMIT)
                next_warning = time.monotonic() + SECONDS_BETWEEN_WARNINGS


def _size() -> int | None:
    """The slots that there are in all; None where the limit is not there, or is switched off."""
    with get_client(sync_client=True) as client:
        try:
            found = client.read_global_concurrency_limit_by_name(LIMIT)
        except ObjectNotFound:
            return None
    return found.limit if found.active else None
