"""The server of the tests of batches speaks with OpenAI's own client."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.tasks.infer.batch_server import BatchServer, batch_server

openai = pytest.importorskip("openai", reason="needs OpenAI's client")


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


def requests_of(count: int) -> bytes:
    lines = []
    for number in range(count):
        body = {"model": "m", "messages": [{"role": "user", "content": f"text {number}"}]}
        lines.append({"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body})
    return "\n".join(map(json.dumps, lines)).encode()


def test_openais_own_client_uploads_creates_lists_reads_and_cancels(server: BatchServer) -> None:
    server.refused["text 2"] = (400, "too odd")
    client = openai.OpenAI(base_url=server.url, api_key="key", max_retries=0)
    file = client.files.create(file=("a.jsonl", requests_of(4)), purpose="batch")
    assert [(item.id, item.filename) for item in client.files.list(purpose="batch")] == [(file.id, "a.jsonl")]
    settings = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = client.batches.create(**settings, metadata={"overnight": "label"})
    assert (batch.status, batch.metadata) == ("validating", {"overnight": "label"})
    httpx.post(server.url.removesuffix("/v1") + "/clock", json={"seconds": server.seconds})
    batch = client.batches.retrieve(batch.id)
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 3, 1)
    lines = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in lines] == ["3", "1", "0"]
    assert lines[0]["response"]["body"]["choices"][0]["message"]["content"] == "3 txet"
    [line] = client.files.content(batch.error_file_id).text.splitlines()
    assert json.loads(line)["response"]["body"]["error"]["message"] == "too odd"
    others = [client.batches.create(**settings) for _ in range(3)]
    listed = [item.id for item in client.batches.list(limit=2)]  # in two pages
    assert listed == [item.id for item in reversed(others)] + [batch.id]
    assert client.batches.cancel(others[0].id).status == "cancelling"
