"""Pass the address of the Prefect server to the workers of a Ray that was there before the run.

Without the address, each worker would start a server of its own for the tasks that it runs.
"""

import contextlib
import os
from collections.abc import Iterator

import ray
from prefect.settings import get_current_settings
from prefect_ray.context import remote_options

API = "PREFECT_API_URL"


@contextlib.contextmanager
def server_known_to_workers() -> Iterator[None]:
    """Pass the address of the Prefect server to the Ray workers of the body's tasks.

    This is needed only if Ray runs already, and its workers have no address or another one.
    """
    url = get_current_settings().api.url
    if not url or not ray.is_initialized() or ray.get(_address.remote()) == url:
        yield
        return
    with remote_options(runtime_env={"env_vars": {API: url}}):
        yield


@ray.remote(num_cpus=0)
def _address() -> str | None:
    return os.environ.get(API)
