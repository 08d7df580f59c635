"""OpenAI's batch API: a file of requests is uploaded, and a batch made of it. Other providers differ in a few words."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.provider import Batch, Phase, Result
from overnight.tasks.infer.endpoint.faults import Blame, Fault, words_of

PAGE = 100
PHASES = {"completed": Phase.ENDED, "expired": Phase.ENDED, "cancelled": Phase.ENDED, "failed": Phase.FAILED}
FULL = ("token_limit_exceeded", "enqueued token limit", "batch_queue_full")
NOT_TRIED = ("batch_expired", "batch_cancelled")


@dataclass(frozen=True)
class Variant:
    """What differs between providers: the path of each request, and how the file is uploaded."""

    endpoint: str = "/v1/chat/completions"
    purpose: str = "batch"
    upload: str = "/files"
    has_name_field: bool = False


VARIANTS = {
    "openai": Variant(),
    "azure": Variant(endpoint="/chat/completions"),
    "groq": Variant(),
    # https://docs.together.ai/reference/upload-file
    "together": Variant(purpose="batch-api", upload="/files/upload", has_name_field=True),
}


@dataclass(frozen=True)
class OpenAIBatches:
    """The batches of one account."""

    connection: Connection
    variant: Variant
    window: str

    def line(self, key: str, body: str) -> bytes:
        head = json.dumps({"custom_id": key, "method": "POST", "url": self.variant.endpoint})
        return f'{head[:-1]}, "body": {body}}}\n'.encode()

    def upload(self, name: str, content: bytes) -> str:
        fields = {"purpose": self.variant.purpose}
        if self.variant.has_name_field:
            fields["file_name"] = name
        return id_of(self.connection.upload(self.variant.upload, name, content, fields))

    def find_file(self, name: str) -> str | None:
        for file in self._listed("/files", purpose=self.variant.purpose):
            if file.get("filename") == name:
                return str(file["id"])
        return None

    def create(self, file: str, label: str, content: Callable[[], bytes]) -> Batch:
        body = {"input_file_id": file, "endpoint": self.variant.endpoint, "completion_window": self.window}
        answer = self.connection.post("/batches", {**body, "metadata": {"overnight": label}})
        return _batch(answer.get("job") or answer)  # Together has a job

    def batches(self, since: float) -> Iterator[Batch]:
        for item in self._listed("/batches"):
            batch = _batch(item)
            if not batch.created_at or batch.created_at >= since:
                yield batch

    def look(self, id: str) -> Batch:
        return _batch(self.connection.get(f"/batches/{id}"))

    def results(self, file: str) -> Iterator[Result | None]:
        return results_in(self.connection.lines(f"/files/{file}/content"), result_of)

    def cancel(self, id: str) -> None:
        self.connection.post(f"/batches/{id}/cancel", {})

    def _listed(self, path: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages."""
        return self.connection.items(path, "data", _following, limit=PAGE, **parameters)


def _following(page: dict[str, Any], _: dict[str, Any]) -> dict[str, Any] | None:
    return {"after": page["data"][-1]["id"]} if page.get("data") and page.get("has_more") else None


def results_in(lines: Iterable[bytes], read: Callable[[dict[str, Any]], Result]) -> Iterator[Result | None]:
    """Yield the result in each line; None for a line that cannot be read."""
    for line in lines:
        try:
            yield read(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            yield None


def id_of(item: dict[str, Any]) -> str:
    if not item.get("id"):
        raise Fault(Blame.SERVER, f"expected an object with an id, found {str(item)[:200]}")
    return str(item["id"])


def _batch(item: dict[str, Any]) -> Batch:
    state = str(item.get("status")).lower()
    counts = item.get("request_counts") or {}
    problems = (item.get("errors") or {}).get("data") or []
    words = "; ".join(map(_problem, problems[:3])) or str(item.get("error") or "")
    files = item.get("output_file_id"), item.get("error_file_id")
    return Batch(
        id=id_of(item),
        state=state,
        phase=PHASES.get(state, Phase.OPEN),
        file=str(item.get("input_file_id") or ""),
        label=str((item.get("metadata") or {}).get("overnight") or ""),
        created_at=_seconds(item.get("created_at")),
        completed=counts.get("completed"),
        results=tuple(dict.fromkeys(filter(None, files))),
        problem=words,
        is_full=any(word in words.lower() for word in FULL),
    )


def _problem(problem: dict[str, Any]) -> str:
    line = f"line {problem['line']}: " if problem.get("line") is not None else ""
    return f"{line}{problem.get('code')}: {words_of(problem)}"


def _seconds(moment: Any) -> float:
    return float(moment) if isinstance(moment, int | float) else 0.0  # Together has a text


def result_of(line: dict[str, Any]) -> Result:
    key, response, error = str(line["custom_id"]), line.get("response"), line.get("error")
    if response:
        status, body = int(response["status_code"]), response["body"]
        return Result(key, body=body, status=status, error=None if status == 200 else body)
    if error and str(error.get("code")).lower() in NOT_TRIED:
        return Result(key)
    return Result(key, error=error or "no response")
