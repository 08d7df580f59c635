"""Begin the imports of the workers while a run is prepared, so that the first rows do not wait for them."""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from overnight.tasks.workers import fork_server

if TYPE_CHECKING:
    from overnight.flows.job.model import Job

# Names, because this process does not wait for the imports.
WORKER_IMPORTS, S3_IMPORTS = "overnight.flows.runs.worker_imports", "overnight.tasks.storage.list_s3"
WRITER_IMPORTS = "overnight.tasks.write.stream.staging"


@contextlib.contextmanager
def fork_server_for_local_ray() -> Iterator[None]:
    """Run a fork server for the local Ray that this process starts, and let it import what every worker needs."""
    with fork_server.for_local_ray():
        fork_server.preload([WORKER_IMPORTS])
        yield


def begin_imports(job: "Job") -> None:
    """Start to import what the first rows of `job` need, in a Ray process, while inputs are listed. Do not wait.

    If a fork server exists, it imports what reads rows and runs models, and the Ray process what writes.
    """
    import ray

    modules = first_imports(job)
    if fork_server.is_there():
        fork_server.preload(modules)
        modules = [WRITER_IMPORTS]
    ray.remote(num_cpus=0, max_retries=0)(import_all).remote(modules)


def first_imports(job: "Job") -> list[str]:
    """Return the modules that read the first rows of `job`: S3's client, half a second of CPU, only if it names S3."""
    if "s3://" in job.model_dump_json():
        return [WORKER_IMPORTS, S3_IMPORTS]
    return [WORKER_IMPORTS]


def import_all(modules: Sequence[str]) -> None:
    """Import these modules in this process."""
    for module in modules:
        importlib.import_module(module)
