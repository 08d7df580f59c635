"""Requests to a provider's batch API. Each is sent once: the loop over the batches tries again at its next look."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.tasks.infer.endpoint.faults import Blame, Fault, fault_of
from overnight.tasks.infer.endpoint.transport import goes_directly, secrets_of, without_secrets

SECONDS, SECONDS_OF_FILES = 60.0, 600.0


class Gone(Fault):
    """The provider has no such batch or file, or no such path."""


class Connection:
    """A client of the API at `url`, for one thread. Messages have no secret."""

    def __init__(self, url: str, key: str | None, headers: Mapping[str, str]) -> None:
        import httpx

        base = httpx.URL(url)
        self._secrets = secrets_of(key, list(base.params.values()), headers)
        own = dict(headers)
        if key:
            own["Authorization"] = f"Bearer {key}"
        no_proxies = dict.fromkeys(("all://", "http://", "https://")) if goes_directly(base.host) else None
        self._client = httpx.Client(mounts=no_proxies, headers=own, timeout=SECONDS)
        self._url = base

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return self._json("GET", path, params=parameters)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._json("POST", path, json=body)

    def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> dict[str, Any]:
        files = {"file": (name, content, "application/jsonl")}
        return self._json("POST", path, data=fields, files=files, timeout=SECONDS_OF_FILES)

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a file. Raise `Fault` if it ends early."""
        with self._sent("GET", path, timeout=SECONDS_OF_FILES) as response:
            rest = b""
            for piece in response.iter_bytes():
                *whole, rest = (rest + piece).split(b"\n")
                yield from filter(bytes.strip, whole)
            if rest.strip():
                yield rest

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        with self._sent(method, path, **arguments) as response:
            content = response.read()
        try:
            payload = json.loads(content)
        except ValueError:
            payload = None
        if isinstance(payload, list):  # Together's list of batches
            payload = {"data": payload}
        if not isinstance(payload, dict):
            raise Fault(Blame.SERVER, f"expected a JSON object, found {self._shown(content[:200].decode('replace'))!r}")
        return payload

    @contextlib.contextmanager
    def _sent(self, method: str, path: str, **arguments: Any) -> Iterator[Any]:
        """Send a request, and yield the response with a status of success. Raise `Gone` or `Fault` otherwise."""
        import httpx

        arguments["params"] = dict(self._url.params) | arguments.get("params", {})
        url = self._url.copy_with(path=f"{self._url.path.rstrip('/')}{path}", query=None)
        try:
            with contextlib.ExitStack() as stack:
                response = stack.enter_context(self._client.stream(method, url, **arguments))
                target = response.next_request
                if method == "GET" and target and target.url.host != url.host:  # a store, which gets no key
                    response = stack.enter_context(httpx.stream("GET", target.url, timeout=SECONDS_OF_FILES))
                if not response.is_success:
                    response.read()
                    fault = fault_of(response)
                    fault.sentence = self._shown(fault.sentence)
                    if method == "GET" and response.status_code in (404, 410):
                        raise Gone(fault.blame, f"{fault.sentence} for {path}")
                    raise fault
                yield response
        except httpx.RequestError as error:
            raise Fault(Blame.SERVER, self._shown(f"{type(error).__name__}: {error}")) from None

    def _shown(self, text: str) -> str:
        return without_secrets(text, self._secrets)
