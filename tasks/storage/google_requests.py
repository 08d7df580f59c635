"""Note requests to Google's storage that failed and may succeed later: its driver tries them again in silence."""

from types import SimpleNamespace
from typing import Any

import aiohttp

from overnight.tasks.storage.failed_requests import note
from overnight.tasks.storage.transient_errors import is_passing_status


class NotedRequests(aiohttp.TraceConfig):
    """What a session of aiohttp calls at the end of each request. All are equal, also after pickling."""

    def __init__(self) -> None:
        super().__init__()
        self.on_request_end.append(_ended)
        self.on_request_exception.append(_failed)

    def __reduce__(self) -> tuple[Any, ...]:
        return NotedRequests, ()

    def __repr__(self) -> str:
        return "NotedRequests()"  # fsspec keeps one filesystem for equal settings, by their texts


async def _ended(_: Any, __: SimpleNamespace, request: aiohttp.TraceRequestEndParams) -> None:
    status = request.response.status
    if is_passing_status(status):
        note(f"{request.url.authority}: {status}")


async def _failed(_: Any, __: SimpleNamespace, request: aiohttp.TraceRequestExceptionParams) -> None:
    note(f"{request.url.authority}: {type(request.exception).__name__}")
