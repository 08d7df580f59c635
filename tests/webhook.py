"""A real webhook on 127.0.0.1: it keeps what is posted to it, and refuses while a test wants it to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "a-secret-path"


class Webhook:
    """A server that keeps the bodies posted to it. With `status`, it answers so instead."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.refused = 0
        self.status = 200
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if webhook.status == 200:
                    webhook.posts.append(body)
                else:
                    webhook.refused += 1
                self.send_response(webhook.status)
                self.end_headers()
                self.wfile.write(b"ok")  # Slack's answer

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Yield a webhook that answers while the body runs."""
    server = Webhook()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()


def save_block(name: str, url: str) -> str:
    """Save a notification block that posts to `url` on the Prefect server of the test. Return its name."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    message = {"title": "{{subject}}", "text": "{{body}}"}
    CustomWebhookNotificationBlock(name=name, url=url, json_data=message).save(name, overwrite=True)
    return f"custom-webhook/{name}"
