"""Requests to a store on this machine go past the proxy of the environment, which could not reach it."""

import os
from urllib.parse import urlsplit

from overnight.tasks.config.proxies import THIS_MACHINE, leave_out_this_machine


def s3_address() -> str:
    """Return the address of the S3 server that the environment names; empty for AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def exempt_this_machine(address: str) -> None:
    """Add this machine to the environment's exceptions from its proxy, if `address` is on it."""
    if urlsplit(address).hostname in THIS_MACHINE:
        leave_out_this_machine()
