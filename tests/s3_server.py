"""Serves moto's S3 on a port of this machine: `python s3_server.py PORT [KEY]`.

On S3, of two writes that forbid an existing object (`If-None-Match: *`) one succeeds. Moto looks for the object and
then writes it, in a thread a request, so that both may; here a conditional write waits for the one before it.
With KEY, the server refuses requests that are not signed with an access key that begins so.
"""

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

REFUSAL = b"<Error><Code>AccessDenied</Code><Message>This server knows another key.</Message></Error>"


def serve(port: int, key: str = "") -> None:
    """Answer requests until the process ends."""
    moto, conditional_write = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if key and f"Credential={key}" not in environ.get("HTTP_AUTHORIZATION", ""):
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [REFUSAL]
        if environ["REQUEST_METHOD"] in ("PUT", "POST") and {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"} & environ.keys():
            with conditional_write:
                return moto(environ, start_response)
        return moto(environ, start_response)

    make_server("127.0.0.1", port, answer, threaded=True).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), *sys.argv[2:])
