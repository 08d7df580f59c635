"""Transformers' own server of OpenAI's protocol, on the loopback address, in this process, so that it starts fast."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from transformers.cli.serve import Serve

START_SECONDS = 60


@contextlib.contextmanager
def transformers_server(model: Path) -> Iterator[str]:
    """Serve the saved model, which has its folder's path as its name. The value is the base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Serve(
        force_model=str(model), device="cpu", host="127.0.0.1", port=port, log_level="error", non_blocking=True
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill_server()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    raise TimeoutError(f"transformers' server did not answer within {START_SECONDS} s")
