"""Gemini's batch API: a file of requests is uploaded, and a batch of one model made of it, as a long operation."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.dialects.openai import id_of, results_in
from overnight.tasks.infer.batch.provider import Batch, Phase, Result
from overnight.tasks.infer.chat.gemini_content import model_path
from overnight.tasks.infer.endpoint.faults import words_of

PAGE = 100
ENDED = ("succeeded", "cancelled", "expired")
STATUSES = {3: 400, 5: 404, 7: 403, 8: 429, 9: 400, 11: 400, 12: 501, 16: 401}  # of gRPC's codes; others pass


@dataclass(frozen=True)
class GeminiBatches:
    """The batches of one project, for requests to one model."""

    connection: Connection
    model: str

    def line(self, key: str, body: str) -> bytes:
        return f'{{"key": {json.dumps(key)}, "request": {body}}}\n'.encode()

    def upload(self, name: str, content: bytes) -> str:
        file = {"displayName": name, "mimeType": "application/jsonl"}
        answer = self.connection.upload_in_steps("/files", file, content)
        return id_of({"id": (answer.get("file") or {}).get("name")})

    def find_file(self, name: str) -> str | None:
        for file in self._listed("/files", "files"):
            if file.get("displayName") == name:
                return str(file["name"])
        return None

    def create(self, file: str, label: str, content: Callable[[], bytes]) -> Batch:
        batch = {"displayName": label, "inputConfig": {"fileName": file}}
        return _batch(self.connection.post(f"{model_path(self.model)}:batchGenerateContent", {"batch": batch}))

    def batches(self, since: float) -> Iterator[Batch]:
        for item in self._listed("/batches", "operations"):
            batch = _batch(item)
            if not batch.created_at or batch.created_at >= since:
                yield batch

    def look(self, id: str) -> Batch:
        return _batch(self.connection.get(f"/{id}"))

    def results(self, file: str) -> Iterator[Result | None]:
        return results_in(self.connection.lines(f"/{file}:download", alt="media"), _result)

    def cancel(self, id: str) -> None:
        self.connection.post(f"/{id}:cancel", {})

    def _listed(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages."""
        return self.connection.items(path, name, _following, pageSize=PAGE)


def _following(page: dict[str, Any], _: dict[str, Any]) -> dict[str, Any] | None:
    return {"pageToken": page["nextPageToken"]} if page.get("nextPageToken") else None


def _batch(item: dict[str, Any]) -> Batch:
    facts = item.get("metadata") or {}
    state = str(facts.get("state")).lower().rpartition("state_")[2]  # BATCH_STATE_ or JOB_STATE_
    stats, output = facts.get("batchStats") or {}, facts.get("output") or item.get("response") or {}
    completed = stats.get("successfulRequestCount")  # left out if it is 0
    file = output.get("responsesFile")
    phase = Phase.ENDED if state in ENDED else Phase.OPEN
    if state == "failed":  # with a file, some of its requests were tried
        phase = Phase.ENDED if file else Phase.FAILED
    created_at = facts.get("createTime")
    return Batch(
        id=id_of({"id": item.get("name")}),
        state=state,
        phase=phase,
        file=str((facts.get("inputConfig") or {}).get("fileName") or ""),
        label=str(facts.get("displayName") or ""),
        created_at=datetime.fromisoformat(created_at).timestamp() if created_at else 0.0,
        completed=int(completed) if completed is not None else None,
        results=(file,) if file else (),
        problem=words_of(item.get("error")),
    )


def _result(line: dict[str, Any]) -> Result:
    key, error = str(line["key"]), line.get("error")
    if not error:
        return Result(key, body=line["response"], status=200)
    code = int(error.get("code") or 0)
    return Result(key, status=code if code >= 400 else STATUSES.get(code, 500), error={"error": error})
