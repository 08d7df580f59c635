"""Requests to Google's storage that its driver tries again are noted for the incidents of the run."""

import pickle
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from overnight.tasks.storage.failed_requests import take_problems
from overnight.tasks.storage.filesystems import open_filesystem
from overnight.tasks.storage.location import Location


class Busy(BaseHTTPRequestHandler):
    """Answers 503 to the first request for each object, and then its name."""

    seen: set[str] = set()

    def do_GET(self) -> None:
        content = self.path.encode() if self.path in self.seen else b"busy"
        self.send_response(200 if self.path in self.seen else 503)
        self.seen.add(self.path)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
        monkeypatch.setenv("FSSPEC_GS_TOKEN", "anon")
        monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        yield host
        server.shutdown()


def test_an_answer_that_passes_is_noted_once_with_the_host(server: str) -> None:
    take_problems()
    for name in "ab":
        assert f"/o/{name}" in Location(f"gs://bucket/{name}").read_bytes().decode()
    assert take_problems() == [f"waited for the storage: {server}: 503"]


def test_equal_uris_have_one_filesystem_which_can_go_to_another_process(server: str) -> None:
    first, _ = open_filesystem("gs://bucket/a")
    second, _ = open_filesystem("gs://bucket/b")
    assert first is second
    assert pickle.loads(pickle.dumps(first)) is first
