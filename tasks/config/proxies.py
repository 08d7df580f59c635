"""Keep requests to this machine's own addresses away from the proxy that the environment names.

httpx, requests, urllib and Prefect's clients send them to `http_proxy` otherwise, unless `NO_PROXY` names the address.
"""

import contextlib
import os
from collections.abc import Iterator
from urllib.request import getproxies

THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
NAMES = ("no_proxy", "NO_PROXY")  # libraries differ in which of them they read first


def leave_out_this_machine() -> None:
    """Add this machine's own addresses to `NO_PROXY`, in this process and its later children.

    Do nothing if the environment names no proxy.
    """
    if not getproxies().keys() - {"no"}:
        return
    hosts = next(filter(None, map(os.environ.get, NAMES)), "")
    if "*" not in hosts:
        value = ",".join(dict.fromkeys([*filter(None, hosts.replace(" ", "").split(",")), *THIS_MACHINE]))
        os.environ.update(dict.fromkeys(NAMES, value))


@contextlib.contextmanager
def this_machine_past_proxies() -> Iterator[None]:
    """Send requests to this machine's own addresses past the proxy while the body runs."""
    before = {name: os.environ[name] for name in NAMES if name in os.environ}
    leave_out_this_machine()
    try:
        yield
    finally:
        for name in NAMES:
            os.environ.pop(name, None)
        os.environ.update(before)
