"""Anthropic's message batches: a create has all requests inside. A batch has no label, so its results name its rows."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.dialects.openai import id_of, results_in
from overnight.tasks.infer.batch.provider import Batch, Phase, Result

PAGE = 100
STATUSES = {  # https://platform.claude.com/docs/en/api/errors
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


@dataclass(frozen=True)
class AnthropicBatches:
    """The batches of one workspace."""

    connection: Connection

    def line(self, key: str, body: str) -> bytes:
        return f'{{"custom_id": {json.dumps(key)}, "params": {body}}}\n'.encode()

    def upload(self, name: str, content: bytes) -> str:
        return name

    def find_file(self, name: str) -> str | None:
        return name

    def create(self, file: str, label: str, content: Callable[[], bytes]) -> Batch:
        body = b'{"requests": [' + b",".join(content().splitlines()) + b"]}"
        return _batch(self.connection.post_json("/messages/batches", body))

    def batches(self, since: float) -> Iterator[Batch]:
        for item in self.connection.items("/messages/batches", "data", _following, limit=PAGE):
            batch = _batch(item)
            if batch.created_at >= since:
                yield batch

    def look(self, id: str) -> Batch:
        return _batch(self.connection.get(f"/messages/batches/{id}"))

    def results(self, file: str) -> Iterator[Result | None]:
        return results_in(self.connection.lines(f"/messages/batches/{file}/results"), _result)

    def cancel(self, id: str) -> None:
        self.connection.post(f"/messages/batches/{id}/cancel", {})


def _following(page: dict[str, Any], _: dict[str, Any]) -> dict[str, Any] | None:
    return {"after_id": page["data"][-1]["id"]} if page.get("data") and page.get("has_more") else None


def _batch(item: dict[str, Any]) -> Batch:
    id, counts = id_of(item), item.get("request_counts") or {}
    state = str(item.get("processing_status"))
    has_ended = state == "ended"
    if has_ended:
        state = "cancelled" if item.get("cancel_initiated_at") else "expired" if counts.get("expired") else state
    return Batch(
        id=id,
        state=state,
        phase=Phase.ENDED if has_ended else Phase.OPEN,
        label=None,
        rows=sum(counts.values()),
        created_at=datetime.fromisoformat(item["created_at"]).timestamp(),
        completed=counts.get("succeeded") if has_ended else None,
        results=(id,) if item.get("results_url") else (),
    )


def _result(line: dict[str, Any]) -> Result:
    key, result = str(line["custom_id"]), line["result"]
    if result["type"] == "succeeded":
        return Result(key, body=result["message"], status=200)
    if result["type"] != "errored":  # canceled or expired
        return Result(key)
    error = result["error"].get("error") or result["error"]
    return Result(key, status=STATUSES.get(error.get("type"), 500), error={"error": error})
