"""Files from web servers are unpacked and held up to a limit; a larger one costs itself."""

import gzip
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from overnight.tasks.storage.file_info import TooLarge
from overnight.tasks.storage.filesystems import open_filesystem
from overnight.tasks.storage.web_files import read_bounded

MOST = 100_000
ZEROS = bytes(64 * MOST)
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/whole": (200, {"Content-Length": "5"}, b"whole"),
    "/full": (200, {"Content-Length": str(MOST)}, ZEROS[:MOST]),
    "/large": (200, {"Content-Length": str(MOST + 1)}, ZEROS[: MOST + 1]),
    "/endless": (200, {}, ZEROS),
    "/gzip": (200, {"Content-Encoding": "gzip"}, gzip.compress(b"packed")),
    "/deflate": (200, {"Content-Encoding": "deflate"}, zlib.compress(b"packed")),
    "/bomb": (200, {"Content-Encoding": "gzip"}, gzip.compress(ZEROS)),
    "/cut": (200, {"Content-Encoding": "gzip"}, gzip.compress(b"packed" * 99)[:-9]),
    "/twice": (200, {"Content-Encoding": "gzip, gzip"}, gzip.compress(gzip.compress(ZEROS))),
    "/away": (404, {}, b""),
    "/broken": (500, {}, b""),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, content = ANSWERS[self.path]
            self.send_response(status)
            for header in headers.items():
                self.send_header(*header)
            self.end_headers()
            try:
                self.wfile.write(content)
            except OSError:  # the reader had enough
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/whole", b"whole"),
        ("/full", ZEROS[:MOST]),
        ("/gzip", b"packed"),
        ("/deflate", b"packed"),
        ("/large", TooLarge),
        ("/endless", TooLarge),
        ("/bomb", TooLarge),
        ("/cut", ValueError),
        ("/twice", ValueError),
        ("/away", FileNotFoundError),
        ("/broken", Exception),
    ],
)
def test_no_more_than_the_limit_of_a_file_is_held(server: str, path: str, expected: bytes | type[Exception]) -> None:
    filesystem, _ = open_filesystem(server, timeout_seconds=20.0)
    [found, neighbour] = read_bounded(filesystem, [server + path, server + "/whole"], MOST)
    assert neighbour == b"whole"
    assert found == expected if isinstance(expected, bytes) else isinstance(found, expected)


def test_without_a_limit_a_file_is_whole(server: str) -> None:
    filesystem, _ = open_filesystem(server, timeout_seconds=20.0)
    assert read_bounded(filesystem, [server + "/bomb"], None) == [ZEROS]
