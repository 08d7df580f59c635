"""The words in which providers differ from OpenAI."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.dialects.openai import VARIANTS, OpenAIBatches
from overnight.tasks.infer.endpoint.faults import Fault
from tests.tasks.infer.batch.client import ROWS, filling, keys, server_clock
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


def test_together_wraps_a_created_batch_and_shouts_its_states(server: BatchServer, tmp_path: Path) -> None:
    server.dialect, server.faults = "together", {number: {"upper_case"} for number in range(3)}
    record = filling(server.url, tmp_path, server_clock(server.url), dialect="together").run()
    assert (record["answered"], {batch["state"] for batch in record["batches"]}) == (ROWS, {"completed"})


def test_azure_has_its_own_path(server: BatchServer, tmp_path: Path) -> None:
    filling(server.url, tmp_path, server_clock(server.url), dialect="azure").turn()
    assert {batch.endpoint for batch in server.batches.values()} == {"/chat/completions"}
    line = json.loads(server.contents["file-00000"].splitlines()[0])
    assert (line["custom_id"], line["method"], line["url"]) == (keys()[0], "POST", "/chat/completions")


@pytest.mark.parametrize("answer", [{"error": "busy"}, {"id": None}])
def test_an_object_without_an_id_is_a_fault_that_passes(answer: dict) -> None:
    connection: Any = SimpleNamespace(get=lambda _: answer, upload=lambda *_: answer, post=lambda *_: answer)
    provider = OpenAIBatches(connection, VARIANTS["openai"], "24h")
    for act in (
        lambda: provider.look("b"),
        lambda: provider.upload("a", b""),
        lambda: provider.create("f", "l", bytes),
    ):
        with pytest.raises(Fault) as raised:
            act()
        assert raised.value.passes


def test_batches_are_found_in_a_bare_list_and_in_any_order() -> None:
    """Together has a bare list, and only OpenAI promises the newest first."""
    items = [{"id": id, "status": "completed", "created_at": moment} for id, moment in (("old", 1), ("new", 9))]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(items).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        connection = Connection(f"http://127.0.0.1:{server.server_port}", None, {})
        provider = OpenAIBatches(connection, VARIANTS["together"], "24h")
        assert [batch.id for batch in provider.batches(5)] == ["new"]
