"""Requests of JSON to one URL, through the proxy of the environment. No message and no log contains a secret.

Requests to this machine's own addresses use no proxy, in any form of the address: localhost, ::1, 127.1. An entry of
NO_PROXY may be a network, such as 10.0.0.0/8; httpx compares only names.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from overnight.tasks.config.masking import HIDDEN, masked
from overnight.tasks.errors import JobError
from overnight.tasks.infer.endpoint.faults import Blame, Fault

if TYPE_CHECKING:
    import httpx

MESSAGE_CHARACTERS = 300
MOST_BYTES = 64 * 2**20  # of an answer, unpacked
MOST_BYTES_OF_FAULTS = 2**20  # of the words of another status; what follows is left
ENCODINGS = ("identity", "gzip", "deflate")
OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")  # headers that are about the packed content
AUTHORIZATION = "Authorization"
SHORTEST_SECRET = 6  # minimum characters of a value in the query that is masked in responses
OWN_NAMES = (".localhost", ".localdomain")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Transport:
    """A client of the URL `base` with `path` after it, for one event loop. `headers` are those of the settings."""

    def __init__(
        self,
        base: str,
        path: str,
        key: str | None,
        headers: Mapping[str, str],
        connections: int,
        key_header: str = AUTHORIZATION,
    ) -> None:
        """Raise `JobError` if `base` is not an HTTP URL with a host."""
        import httpx

        if not base.startswith(("http://", "https://")) or not httpx.URL(base).host:
            raise JobError("base_url: expected http:// or https:// and a host, found another form.", "infer")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs a line per request
        url = httpx.URL(base)
        self.shown_url = masked(base.rstrip("/"))
        self._url = url.copy_with(path=f"{url.path.rstrip('/')}{path}")  # before the query
        self._secrets = secrets_of(key, list(url.params.values()), headers)
        self._proxy = proxy_of(url.scheme, url.host)
        sent_headers = {"Accept-Encoding": "gzip, deflate", **headers, **key_in_header(key, key_header)}
        self._client = _client(url.host, sent_headers, connections)

    async def post(self, body: dict[str, Any], seconds: float) -> "httpx.Response":
        """Send the JSON object `body`, and return the response of any status. Raise `Fault` without a response."""
        import httpx

        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream("POST", self._url, json=body, timeout=None) as stream,
            ):
                return await _whole(stream)
        except TimeoutError:
            raise Fault(Blame.SERVER, f"no answer within {seconds:.3g} s") from None
        except httpx.RequestError as error:
            through = f", through the proxy {self._proxy} of the environment (see NO_PROXY)" if self._proxy else ""
            raise Fault(Blame.SERVER, f"{type(error).__name__}: {error}{through}") from None

    async def close(self) -> None:
        await self._client.aclose()

    def shown(self, text: str) -> str:
        """Return a text of the endpoint for a message: in one line, cut, and without secrets."""
        return without_secrets(text, self._secrets)


def key_in_header(key: str | None, name: str) -> dict[str, str]:
    """Return the header with the key. Other headers than Authorization have it alone."""
    if not key:
        return {}
    return {name: f"Bearer {key}" if name == AUTHORIZATION else key}


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text of an endpoint in one line, cut, and without these secrets."""
    text = " ".join(text.encode(errors="replace").decode().split())
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return masked(text)[:MESSAGE_CHARACTERS]


def _client(host: str, headers: Mapping[str, str], connections: int) -> "httpx.AsyncClient":
    import httpx

    no_proxies = dict.fromkeys(("all://", "http://", "https://")) if goes_directly(host) else None
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    try:
        return httpx.AsyncClient(mounts=no_proxies, headers=headers, limits=limits)
    except (ValueError, ImportError) as error:  # socks:// without its library, or no URL
        raise JobError(f"the proxy of the environment cannot be used: {masked(str(error))}", "infer") from None


def secrets_of(key: str | None, query_values: list[str], headers: Mapping[str, str]) -> list[str]:
    """Return the texts that no message may have, the longest first."""
    values = query_values
    for header in headers.values():
        values += [header, *header.split()]  # also the key alone, in `Basic key`
    secrets = {value for value in values if len(value) >= SHORTEST_SECRET}
    if key:
        secrets.add(key)
    return sorted(secrets, key=len, reverse=True)


async def _whole(response: "httpx.Response") -> "httpx.Response":
    """Return a response with its content. Raise `Fault` for more than `MOST_BYTES`, however small it is compressed."""
    import httpx

    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ENCODINGS:  # several, or another one, could unpack one packet to more than the memory
        raise Fault(Blame.SETTINGS, f"an answer in the encoding {encoding!r}, expected {' or '.join(ENCODINGS)}")
    content, is_answer = bytearray(), response.status_code == 200
    async for part in response.aiter_bytes():
        content += part
        if is_answer and len(content) > MOST_BYTES:
            raise Fault(Blame.ROW, f"an answer of more than {MOST_BYTES:,} bytes")
        if not is_answer and len(content) > MOST_BYTES_OF_FAULTS:
            break
    headers = response.headers.copy()
    for name in OF_TRANSFER:
        headers.pop(name, None)
    return httpx.Response(response.status_code, headers=headers, content=bytes(content))


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
