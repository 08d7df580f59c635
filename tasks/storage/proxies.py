"""Requests to a store on this machine go past the proxy of the environment, which could not reach it."""

import os
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

OWN = frozenset({"localhost", "127.0.0.1", "::1"})
EXCEPTIONS = ("no_proxy", "NO_PROXY")  # the libraries differ in the one that they read first


def s3_address() -> str:
    """Return the address of the S3 server that the environment names; empty for AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def exempt_this_machine(address: str) -> None:
    """Add the host of `address` to the environment's exceptions from its proxy, if the host is this machine."""
    host = urlsplit(address).hostname
    if host not in OWN or not getproxies_environment():
        return
    hosts = next((os.environ[name] for name in EXCEPTIONS if os.environ.get(name)), "")
    if host not in hosts.split(","):
        os.environ.update(dict.fromkeys(EXCEPTIONS, f"{hosts},{host}".lstrip(",")))
