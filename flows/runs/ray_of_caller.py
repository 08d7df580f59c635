"""Pass the address of the Prefect server, and its login, to the workers of a Ray that was there before the run.

Without the address, each worker would start a server of its own for the tasks that it runs. Ray shows the variables of
its workers, so they name the file with the login of the local server, and never the login.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator

import ray
from prefect.settings import get_current_settings
from prefect_ray.context import remote_options

from overnight.flows.runs.local_server import login_profile

NAMES = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")


@contextlib.contextmanager
def server_known_to_workers() -> Iterator[None]:
    """Pass the address and the login of the Prefect server to the Ray workers of the body's tasks.

    This is needed only if Ray runs already, and its workers have none or others.
    """
    api = get_current_settings().api
    login = api.auth_string.get_secret_value() if api.auth_string else ""
    if not api.url or not ray.is_initialized() or ray.get(_digest_there.remote()) == _digest(api.url, login):
        yield
        return
    with remote_options(runtime_env={"env_vars": {"PREFECT_API_URL": api.url, **login_profile(api.url)}}):
        yield


def _digest(*values: str) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()


@ray.remote(num_cpus=0)
def _digest_there() -> str:
    return _digest(*(os.environ.get(name, "") for name in NAMES))
