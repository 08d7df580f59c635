"""What a request to a batch API raises, and that no message has a secret."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from overnight.tasks.infer.batch.connection import Connection, Gone
from overnight.tasks.infer.endpoint.faults import Blame, Fault
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


def test_what_a_provider_has_forgotten_is_gone_and_a_wrong_path_is_a_wrong_setting(server: BatchServer) -> None:
    connection = Connection(server.url, None, {})
    with pytest.raises(Gone):
        connection.get("/nowhere")
    with pytest.raises(Fault) as raised:
        connection.post("/nowhere", {})
    assert raised.value.blame is Blame.SETTINGS


def test_an_absent_server_is_a_fault_that_passes() -> None:
    with pytest.raises(Fault) as raised:
        Connection("http://127.0.0.1:9/v1", None, {}).get("/batches")
    assert raised.value.passes


def test_the_key_goes_into_the_header_and_into_no_message(server: BatchServer) -> None:
    server.key = "right-key"
    assert Connection(server.url, "right-key", {}).get("/batches")["data"] == []
    with pytest.raises(Fault) as raised:
        Connection(server.url, "wrong-key", {}).get("/batches")
    assert raised.value.blame is Blame.KEY
    assert "wrong-key" not in raised.value.sentence


def test_a_file_in_a_store_is_read_by_its_signed_address_without_the_key() -> None:
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers.get("Authorization"), self.headers.get("api-key")))
            self.send_response(302 if self.path == "/v1/f" else 200)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/store?signature=s")  # type: ignore[attr-defined]
            self.end_headers()
            self.wfile.write(b"a\nb\n" if self.path != "/v1/f" else b"")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        connection = Connection(f"http://127.0.0.1:{server.server_port}/v1", "k", {"api-key": "h"})
        assert list(connection.lines("/f")) == [b"a", b"b"]
        server.shutdown()
    assert requests == [("/v1/f", "Bearer k", "h"), ("/store?signature=s", None, None)]
