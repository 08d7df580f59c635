"""The server of the tests of batches speaks with the providers' own clients.

`make .venv-clients/installed` makes an environment with three of them, and OVERNIGHT_CLIENTS_PYTHON names its Python.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.tasks.infer.batch_server import BatchServer, batch_server

openai = pytest.importorskip("openai", reason="needs OpenAI's client")
PYTHON = os.environ.get("OVERNIGHT_CLIENTS_PYTHON", "")


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


@pytest.mark.nightly
@pytest.mark.skipif(not PYTHON, reason="OVERNIGHT_CLIENTS_PYTHON names no environment with the clients")
@pytest.mark.parametrize(
    ("dialect", "states", "cancelled"),
    [
        ("anthropic", ["in_progress", "ended"], "canceling"),
        ("mistral", ["QUEUED", "SUCCESS"], "CANCELLATION_REQUESTED"),
        ("gemini", ["JOB_STATE_PENDING", "JOB_STATE_SUCCEEDED"], "JOB_STATE_RUNNING"),
    ],
)
def test_a_providers_own_client_asks_creates_lists_reads_and_cancels(
    dialect: str, states: list[str], cancelled: str
) -> None:
    with batch_server(dialect) as server:
        server.refused["text 1"] = (400, "too odd")
        server.cancel_seconds = 1000
        script = Path(__file__).with_name("vendor_clients.py")
        command = [PYTHON, str(script), dialect, server.url.removesuffix("/v1")]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    found = json.loads(output)
    assert (found["online"], found["answers"], found["errors"]) == ("0 txet", {"0": "0 txet"}, {"1": "too odd"})
    assert (found["states"], found["completed"], found["cancelled"]) == (states, 1, cancelled)
    assert found["listed"] == 2
    if dialect != "anthropic":  # which has no files and no labels
        assert found["files"] == ["a.jsonl"]
        assert "label" in str(found["label"])
