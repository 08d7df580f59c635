"""An HTTP server of a test on the loopback address, which ends with the test."""

import contextlib
import http.server
import threading
from collections.abc import Iterator


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        pass  # connections that whoever asked has left


@contextlib.contextmanager
def served(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port, and yield the URL without a path."""
    server = Server(("127.0.0.1", 0), handler)
    # The argument: how long the end of a server takes at most, in seconds. Python's 0.5 s are minutes of all tests.
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
