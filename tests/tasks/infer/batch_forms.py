"""The forms in which providers speak of batches, for the server of the tests: paths, batches, and lines of results."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


class Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass
class WithHeaders:
    answer: Any
    headers: dict[str, str]


@dataclass
class Call:
    """A request: `act` and `id` are what the form makes of its path."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: Any
    read: Callable[[], Any]

    @property
    def body(self) -> Json:
        body: Json = json.loads(self.read() or b"{}")
        return body

    def number(self, name: str, default: int) -> int:
        return int(self.query.get(name, [str(default)])[0])


@dataclass
class OpenAIForm:
    is_together: bool = False
    url: str = ""  # of the server

    key_header = "Authorization"
    has_one_file = False
    ROUTES = (
        (r"POST /v1/chat/completions", "online"),
        (r"POST /v1/files(/upload)?", "upload"),
        (r"GET /v1/files", "files"),
        (r"POST /v1/batches", "create"),
        (r"GET /v1/batches", "list"),
        (r"GET /v1/files/(?P<id>file-\d+)/content", "content"),
        (r"GET /v1/files/(?P<id>file-\d+)", "file"),
        (r"GET /v1/batches/(?P<id>batch-\d+)", "look"),
        (r"POST /v1/batches/(?P<id>batch-\d+)/cancel", "cancel"),
    )

    def text(self, body: Json) -> str:
        return str(body["messages"][-1]["content"])

    def requests(self, content: bytes) -> list[tuple[str, str]]:
        return [(line["custom_id"], self.text(line["body"])) for line in map(json.loads, content.splitlines())]

    def answer(self, text: str, zeros: bool = False) -> Json:
        message = {"role": "assistant", "content": text[::-1]}
        usage = {"prompt_tokens": 0 if zeros else 7, "completion_tokens": 0 if zeros else 3, "total_tokens": 10}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    def answered(self, key: str, body: Json) -> Json:
        return {"id": "r", "custom_id": key, "response": _response(200, body), "error": None}

    def refused(self, key: str, status: int, words: str) -> Json:
        error = {"error": {"message": words, "type": "invalid_request_error", "code": None}}
        return {"id": "r", "custom_id": key, "response": _response(status, error), "error": None}

    def broken(self, key: str) -> Json:
        return {"id": "r", "custom_id": key, "response": None, "error": {"code": "server_error", "message": "it fell"}}

    def not_tried(self, key: str, state: str) -> Json | None:
        error = {"code": f"batch_{state}", "message": "This request could not be executed."}
        return {"id": "r", "custom_id": key, "response": None, "error": error}

    def check(self, call: Call) -> None:
        """Refuse requests that the provider refuses whatever they ask."""

    def file(self, file: Json) -> Json:
        return {**file, "object": "file", "status": "processed"}

    def created(self, call: Call) -> Json:
        """The file, the label and the endpoint of a create."""
        body = call.body
        return {"file": body["input_file_id"], "label": body.get("metadata") or {}, "endpoint": body["endpoint"]}

    def shown(self, batch: Any, rows: int, output: str | None) -> Json:
        upper = "upper_case" in batch.faults
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
            "input_file_id": batch.file,
            "completion_window": "24h",
            "status": batch.state.upper() if upper else batch.state,
            "output_file_id": output,
            "error_file_id": batch.errors_file,
            "created_at": int(batch.created_at),
            "request_counts": {"total": rows, "completed": batch.completed, "failed": batch.failed},
            "metadata": batch.label,
        }

    def at_creation(self, shown: Json) -> Json:
        return {"job": shown, "warning": ""} if self.is_together else shown

    def page(self, items: list[Json], call: Call, what: str) -> Json:
        limit, after = call.number("limit", 20), call.query.get("after", [""])[0]
        return _page_after(items, limit, 100, after)

    def error(self, words: str) -> Json:
        return {"error": {"message": words, "type": "invalid_request_error"}}


class MistralForm(OpenAIForm):
    ROUTES = (
        (r"POST /v1/chat/completions", "online"),
        (r"POST /v1/files", "upload"),
        (r"GET /v1/files", "files"),
        (r"POST /v1/batch/jobs", "create"),
        (r"GET /v1/batch/jobs", "list"),
        (r"GET /v1/files/(?P<id>file-\d+)/content", "content"),
        (r"GET /v1/batch/jobs/(?P<id>batch-\d+)", "look"),
        (r"POST /v1/batch/jobs/(?P<id>batch-\d+)/cancel", "cancel"),
    )
    STATES = {"validating": "QUEUED", "in_progress": "RUNNING", "completed": "SUCCESS", "expired": "TIMEOUT_EXCEEDED"}

    def file(self, file: Json) -> Json:
        return {**file, "object": "file", "sample_type": "batch_request", "source": "upload"}

    def created(self, call: Call) -> Json:
        body = call.body
        if body["timeout_hours"] < 1 or not body["model"]:
            raise Refused(422, "a model and timeout_hours are required")
        [file] = body["input_files"]
        return {"file": file, "label": body.get("metadata") or {}, "endpoint": body["endpoint"]}

    def shown(self, batch: Any, rows: int, output: str | None) -> Json:
        state = "CANCELLATION_REQUESTED" if batch.state == "cancelling" else batch.state.upper()
        return {
            "id": batch.id,
            "object": "batch",
            "input_files": [batch.file],
            "metadata": batch.label,
            "endpoint": batch.endpoint,
            "model": "m",
            "errors": [{"message": error["message"], "count": 1} for error in batch.errors],
            "status": self.STATES.get(batch.state, state),
            "output_file": output,
            "error_file": batch.errors_file,
            "created_at": int(batch.created_at),
            "total_requests": rows,
            "completed_requests": batch.completed + batch.failed,
            "succeeded_requests": batch.completed,
            "failed_requests": batch.failed,
        }

    def page(self, items: list[Json], call: Call, what: str) -> Json:
        size, number = call.number("page_size", 100), call.number("page", 0)
        return {"object": "list", "data": items[number * size : (number + 1) * size], "total": len(items)}


class AnthropicForm(OpenAIForm):
    key_header = "x-api-key"
    has_one_file = True
    ROUTES = (
        (r"POST /v1/messages", "online"),
        (r"POST /v1/messages/batches", "create"),
        (r"GET /v1/messages/batches", "list"),
        (r"GET /v1/messages/batches/(?P<id>batch-\d+)/results", "content"),
        (r"GET /v1/messages/batches/(?P<id>batch-\d+)", "look"),
        (r"POST /v1/messages/batches/(?P<id>batch-\d+)/cancel", "cancel"),
    )

    def requests(self, content: bytes) -> list[tuple[str, str]]:
        return [(item["custom_id"], self.text(item["params"])) for item in json.loads(content)]

    def check(self, call: Call) -> None:
        """Refuse another version of the API, and settings that this one does not have."""
        if call.headers["anthropic-version"] != "2026-10-21":
            raise Refused(400, "anthropic-version: header is required")
        if re.search(rb'"(temperature|top_p|top_k|seed)":', call.read()):
            raise Refused(400, "temperature: Extra inputs are not permitted")

    def answer(self, text: str, zeros: bool = False) -> Json:
        usage = {"input_tokens": 0 if zeros else 7, "output_tokens": 0 if zeros else 3}
        content = [{"type": "text", "text": text[::-1]}]
        facts = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        return {**facts, "content": content, "stop_reason": "end_turn", "usage": usage}

    def answered(self, key: str, body: Json) -> Json:
        return {"custom_id": key, "result": {"type": "succeeded", "message": body}}

    def refused(self, key: str, status: int, words: str) -> Json:
        kind = "invalid_request_error" if status == 400 else "api_error"
        error = {"type": "error", "error": {"type": kind, "message": words}}
        return {"custom_id": key, "result": {"type": "errored", "error": error}}

    def broken(self, key: str) -> Json:
        return self.refused(key, 500, "it fell over")

    def not_tried(self, key: str, state: str) -> Json | None:
        return {"custom_id": key, "result": {"type": "canceled" if state == "cancelled" else "expired"}}

    def created(self, call: Call) -> Json:
        requests = call.body["requests"]
        for request in requests:
            if not re.fullmatch(r"[\w-]{1,64}", request["custom_id"]):
                raise Refused(400, "custom_id: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'")
        return {"content": json.dumps(requests).encode(), "label": {}, "endpoint": "/v1/messages"}

    def shown(self, batch: Any, rows: int, output: str | None) -> Json:
        has_ended = batch.state in ("completed", "expired", "cancelled")
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if has_ended:
            counts |= {"succeeded": batch.completed, "errored": batch.failed}
            counts["canceled" if batch.state == "cancelled" else "expired"] = rows - batch.completed - batch.failed
        else:
            counts["processing"] = rows
        url = f"{self.url}/messages/batches/{batch.id}/results"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if has_ended else "canceling" if batch.cancelled_at else "in_progress",
            "request_counts": counts,
            "created_at": moment(batch.created_at),
            "expires_at": moment(batch.created_at + 86400),
            "ended_at": moment(batch.created_at) if has_ended else None,
            "cancel_initiated_at": moment(batch.cancelled_at) if batch.cancelled_at else None,
            "archived_at": None,
            "results_url": url if output else None,
        }

    def page(self, items: list[Json], call: Call, what: str) -> Json:
        return _page_after(items, call.number("limit", 20), 1000, call.query.get("after_id", [""])[0])

    def error(self, words: str) -> Json:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": words}}


class GeminiForm(OpenAIForm):
    key_header = "x-goog-api-key"
    has_one_file = True
    ROUTES = (
        (r"POST /v1/models/m:generateContent", "online"),
        (r"POST /upload/v1/files", "begin"),
        (r"POST /target/(?P<id>.+)", "upload"),
        (r"GET /v1/files", "files"),
        (r"POST /v1/models/m:batchGenerateContent", "create"),
        (r"GET /v1/batches", "list"),
        (r"GET /v1/files/(?P<id>file-\d+):download", "content"),
        (r"GET /v1/batches/(?P<id>batch-\d+)", "look"),
        (r"POST /v1/batches/(?P<id>batch-\d+):cancel", "cancel"),
    )

    def text(self, body: Json) -> str:
        return str(body["contents"][-1]["parts"][0]["text"])

    def requests(self, content: bytes) -> list[tuple[str, str]]:
        return [(line["key"], self.text(line["request"])) for line in map(json.loads, content.splitlines())]

    def answer(self, text: str, zeros: bool = False) -> Json:
        candidate = {"content": {"role": "model", "parts": [{"text": text[::-1]}]}, "finishReason": "STOP", "index": 0}
        counts = {"promptTokenCount": 0 if zeros else 7, "candidatesTokenCount": 0 if zeros else 3}
        return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "m"}

    def answered(self, key: str, body: Json) -> Json:
        return {"key": key, "response": body}

    def refused(self, key: str, status: int, words: str) -> Json:
        return {"key": key, "error": {"code": 3 if status == 400 else 13, "message": words}}

    def broken(self, key: str) -> Json:
        return self.refused(key, 500, "it fell over")

    def not_tried(self, key: str, state: str) -> Json | None:
        return None

    def file(self, file: Json) -> Json:
        return {"name": f"files/{file['id']}", "displayName": file["filename"], "sizeBytes": str(file["bytes"])}

    def begun(self, call: Call, url: str) -> WithHeaders:
        if call.headers["X-Goog-Upload-Command"] != "start":
            raise Refused(400, "expected the start of an upload")
        file = call.body["file"]
        name = file.get("displayName") or file["display_name"]  # both forms of JSON are right
        return WithHeaders({}, {"X-Goog-Upload-URL": f"{url.removesuffix('/v1')}/target/{name}"})

    def created(self, call: Call) -> Json:
        batch = call.body["batch"]
        file = batch["inputConfig"]["fileName"].removeprefix("files/")
        return {"file": file, "label": {"name": batch["displayName"]}, "endpoint": "generateContent"}

    def shown(self, batch: Any, rows: int, output: str | None) -> Json:
        words = {"validating": "PENDING", "in_progress": "RUNNING", "cancelling": "RUNNING", "completed": "SUCCEEDED"}
        state = words.get(batch.state, batch.state.upper())
        stats = {"requestCount": str(rows), "successfulRequestCount": str(batch.completed)}
        facts = {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "model": "models/m",
            "displayName": batch.label["name"],
            "inputConfig": {"fileName": f"files/{batch.file}"},
            "state": f"BATCH_STATE_{state}",
            "createTime": moment(batch.created_at),
            "batchStats": stats,
            "name": f"batches/{batch.id}",
        }
        shown: Json = {"name": f"batches/{batch.id}", "metadata": facts}
        if output:
            facts["output"] = {"responsesFile": f"files/{output}"}
            shown |= {"done": True, "response": facts["output"]}
        if batch.errors:
            shown |= {"done": True, "error": {"code": 3, "message": batch.errors[0]["message"]}}
        return shown

    def page(self, items: list[Json], call: Call, what: str) -> Json:
        size, start = call.number("pageSize", 50), call.number("pageToken", 0)
        more = {"nextPageToken": str(start + size)} if start + size < len(items) else {}
        return {"files" if what == "files" else "operations": items[start : start + size], **more}

    def error(self, words: str) -> Json:
        return {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}


FORMS: dict[str, Callable[[], OpenAIForm]] = {
    **dict.fromkeys(("openai", "azure", "groq"), OpenAIForm),
    "together": lambda: OpenAIForm(is_together=True),
    "mistral": MistralForm,
    "anthropic": AnthropicForm,
    "gemini": GeminiForm,
}


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(math.floor(seconds), UTC).isoformat().replace("+00:00", ".123456789Z")


def _response(status: int, body: Json) -> Json:
    return {"status_code": status, "request_id": "r", "body": body}


def _page_after(items: list[Json], limit: int, most: int, after: str) -> Json:
    if not 1 <= limit <= most:
        raise Refused(400, f"limit: expected 1 to {most}")
    names = [item["id"] for item in items]
    start = names.index(after) + 1 if after else 0
    chosen = items[start : start + limit]
    ends = {"first_id": chosen[0]["id"], "last_id": chosen[-1]["id"]} if chosen else {}
    return {"object": "list", "data": chosen, "has_more": start + limit < len(items), **ends}
