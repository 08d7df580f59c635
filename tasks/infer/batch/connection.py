"""Requests to a provider's batch API. Each is sent once: the loop over the batches tries again at its next look."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from overnight.tasks.infer.endpoint.faults import Blame, Fault, fault_of
from overnight.tasks.infer.endpoint.transport import (
    AUTHORIZATION,
    goes_directly,
    key_in_header,
    secrets_of,
    without_secrets,
)

SECONDS, SECONDS_OF_FILES = 60.0, 600.0
# From a page and its parameters to those of the next page.
Following = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]


class Gone(Fault):
    """The provider has no such batch or file, or no such path."""


class Connection:
    """A client of the API at `url`, for one thread. Messages have no secret."""

    def __init__(self, url: str, key: str | None, headers: Mapping[str, str], key_header: str = AUTHORIZATION) -> None:
        import httpx

        base = httpx.URL(url)
        self._secrets = secrets_of(key, list(base.params.values()), headers)
        own = {**headers, **key_in_header(key, key_header)}
        no_proxies = dict.fromkeys(("all://", "http://", "https://")) if goes_directly(base.host) else None
        self._client = httpx.Client(mounts=no_proxies, headers=own, timeout=SECONDS)
        self._url = base

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return self._json("GET", path, params=parameters)

    def items(self, path: str, name: str, following: Following, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages of a list, and raise `Fault` if a page comes again.

        `following` returns the parameters of the page after one, and None after the last page.
        """
        former: Any = None
        while True:
            page = self.get(path, **parameters)
            items = page.get(name) or []
            more = following(page, parameters)
            ids = [item.get("id") or item.get("name") for item in items] or more
            if ids and ids == former:
                raise Fault(Blame.SETTINGS, f"GET {path}: expected another page, found the same again; see base_url")
            yield from items
            if not more:
                return
            parameters, former = {**parameters, **more}, ids

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._json("POST", path, json=body)

    def post_json(self, path: str, body: bytes) -> dict[str, Any]:
        """Post an object that is JSON already, and may be large."""
        headers = {"Content-Type": "application/json"}
        return self._json("POST", path, content=body, headers=headers, timeout=SECONDS_OF_FILES)

    def upload(self, path: str, name: str, content: bytes, fields: Mapping[str, str]) -> dict[str, Any]:
        files = {"file": (name, content, "application/jsonl")}
        return self._json("POST", path, data=fields, files=files, timeout=SECONDS_OF_FILES)

    def upload_in_steps(self, path: str, file: Mapping[str, Any], content: bytes) -> dict[str, Any]:
        """Upload a file by Google's protocol: the response to its description names the URL for the content."""
        start = {"X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "start"}
        start |= {"X-Goog-Upload-Header-Content-Length": str(len(content))}
        start |= {"X-Goog-Upload-Header-Content-Type": str(file["mimeType"])}
        with self._sent("POST", path, before="/upload", json={"file": file}, headers=start) as response:
            target = response.headers.get("x-goog-upload-url")
        if not target:
            raise Fault(Blame.SERVER, "expected a URL for the upload, found none")
        finish = {"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"}
        return self._json("POST", "", at=target, content=content, headers=finish, timeout=SECONDS_OF_FILES)

    def lines(self, path: str, **parameters: Any) -> Iterator[bytes]:
        """Yield the lines of a file. Raise `Fault` if it ends early."""
        with self._sent("GET", path, params=parameters, timeout=SECONDS_OF_FILES) as response:
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
            raise Fault(
                Blame.SERVER, f"expected a JSON object, found {self._shown(content[:200].decode(errors='replace'))!r}"
            )
        return payload

    @contextlib.contextmanager
    def _sent(self, method: str, path: str, before: str = "", at: str = "", **arguments: Any) -> Iterator[Any]:
        """Send a request, and yield the response with a status of success. Raise `Gone` or `Fault` otherwise.

        `before` comes before the path of the settings. `at` is another URL, which the provider has named.
        """
        import httpx

        if at:
            url = httpx.URL(at)
        else:
            arguments["params"] = dict(self._url.params) | arguments.get("params", {})
            url = self._url.copy_with(path=f"{before}{self._url.path.rstrip('/')}{path}", query=None)
        try:
            with contextlib.ExitStack() as stack:
                stream = self._client.stream if url.host == self._url.host else httpx.stream  # others get no key
                response = stack.enter_context(stream(method, url, **arguments))
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
