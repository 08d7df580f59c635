"""Begin the imports of the workers while a run is prepared, so that the first rows do not wait for them."""

import contextlib
import importlib
from collections.abc import Iterator

from overnight.tasks.workers import fork_server

WORKER_IMPORTS = "overnight.flows.runs.worker_imports"  # a name, because this process does not wait for the import


@contextlib.contextmanager
def fork_server_for_local_ray() -> Iterator[None]:
    """Run a fork server for the local Ray that this process starts, and let it import what every worker needs.

    Enter the context early, so that the imports are ready before the first rows. No server starts if Ray is remote, or
    if `OVERNIGHT_FORK_SERVER` is 0.
    """
    with fork_server.for_local_ray():
        fork_server.preload([WORKER_IMPORTS])
        yield


def begin_imports() -> None:
    """Start to import what the first rows need, in a Ray process, while inputs are listed. Do not wait.

    If a fork server exists, do nothing, because its processes have these imports already.
    """
    import ray

    if not fork_server.is_there():
        ray.remote(num_cpus=0, max_retries=0)(importlib.import_module).remote(WORKER_IMPORTS)
