"""The proxy of the environment for an endpoint: the rules that httpx does not have.

Requests to this machine's own addresses use no proxy, in any form of the address: localhost, ::1,
127.1. An entry of NO_PROXY may be a network, such as 10.0.0.0/8; httpx compares only names.
"""

import contextlib
import ipaddress
import os
import socket
import urllib.request
from collections.abc import Iterator

from overnight.tasks.config.masking import masked

OWN_NAMES = (".localhost", ".localdomain")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def goes_directly(host: str) -> bool:
    """Return True if requests to `host` use no proxy, whatever the environment has for its name."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(OWN_NAMES):
        return True
    address = _address(name)
    if address is None:
        return False
    own = getattr(address, "ipv4_mapped", None) or address
    return own.is_loopback or own.is_unspecified or any(address in network for network in _networks())


def proxy_of(scheme: str, host: str) -> str:
    """Return the address of the environment's proxy for a host, without user and password; empty for none."""
    if goes_directly(host) or urllib.request.proxy_bypass(host):
        return ""
    proxies = urllib.request.getproxies()
    return masked(proxies.get(scheme) or proxies.get("all", ""))


def _address(name: str) -> Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name)
    with contextlib.suppress(OSError, UnicodeError):
        return ipaddress.IPv4Address(socket.inet_aton(name))  # 127.1 and 0x7f.1, as curl and the C library read it
    return None


def _networks() -> Iterator[Network]:
    entries = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    for entry in entries.split(","):
        if "/" in entry:
            with contextlib.suppress(ValueError):
                yield ipaddress.ip_network(entry.strip(), strict=False)
