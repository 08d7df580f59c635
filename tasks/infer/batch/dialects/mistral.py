"""Mistral's batch API: files as OpenAI's, and jobs in lists of numbered pages. A job is of one model."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.dialects.openai import id_of, result_of, results_in
from overnight.tasks.infer.batch.provider import Batch, Phase, Result

PAGE = 100
ENDED = ("success", "timeout_exceeded", "cancelled")
HOURS = {"h": 1, "d": 24}  # of a unit of the window


@dataclass(frozen=True)
class MistralBatches:
    """The batches of one account."""

    connection: Connection
    model: str
    window: str

    def line(self, key: str, body: str) -> bytes:
        return f'{{"custom_id": {json.dumps(key)}, "body": {body}}}\n'.encode()

    def upload(self, name: str, content: bytes) -> str:
        return id_of(self.connection.upload("/files", name, content, {"purpose": "batch"}))

    def find_file(self, name: str) -> str | None:
        for file in self._listed("/files", purpose="batch"):
            if file.get("filename") == name:
                return str(file["id"])
        return None

    def create(self, file: str, label: str, content: Callable[[], bytes]) -> Batch:
        body = {
            "input_files": [file],
            "endpoint": "/v1/chat/completions",
            "model": self.model,
            "metadata": {"overnight": label},
            "timeout_hours": int(self.window[:-1]) * HOURS[self.window[-1]],
        }
        return _batch(self.connection.post("/batch/jobs", body))

    def batches(self, since: float) -> Iterator[Batch]:
        after = datetime.fromtimestamp(since, UTC).isoformat()
        return map(_batch, self._listed("/batch/jobs", created_after=after))

    def look(self, id: str) -> Batch:
        return _batch(self.connection.get(f"/batch/jobs/{id}"))

    def results(self, file: str) -> Iterator[Result | None]:
        return results_in(self.connection.lines(f"/files/{file}/content"), result_of)

    def cancel(self, id: str) -> None:
        self.connection.post(f"/batch/jobs/{id}/cancel", {})

    def _listed(self, path: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages. A list that grows meanwhile may repeat some."""
        return self.connection.items(path, "data", _following, page=0, page_size=PAGE, **parameters)


def _following(page: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any] | None:
    return {"page": parameters["page"] + 1} if len(page.get("data") or ()) >= PAGE else None


def _batch(item: dict[str, Any]) -> Batch:
    state = str(item.get("status")).lower()
    files = item.get("output_file"), item.get("error_file")
    phase = Phase.ENDED if state in ENDED else Phase.OPEN
    if state == "failed":  # with files, some of its requests were tried
        phase = Phase.ENDED if any(files) else Phase.FAILED
    return Batch(
        id=id_of(item),
        state=state,
        phase=phase,
        file=str(next(iter(item.get("input_files") or ()), "")),
        label=str((item.get("metadata") or {}).get("overnight") or ""),
        created_at=float(item.get("created_at") or 0),
        completed=item.get("succeeded_requests"),
        results=tuple(dict.fromkeys(filter(None, files))),
        problem="; ".join(str(error.get("message")) for error in (item.get("errors") or ())[:3]),
    )
