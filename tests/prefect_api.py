"""Questions to a Prefect server, as anything that speaks HTTP asks them."""

import json
import time
import urllib.error
import urllib.request
from typing import Any

import pytest


def ask(api: str, path: str, body: Any = None, method: str | None = None) -> Any:
    """The Prefect server's answer: to a GET, with `body` to a POST, or to `method`; None where it has no content."""
    request = urllib.request.Request(
        f"{api}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
        method=method,
    )
    for _ in range(20):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        except TimeoutError:
            if request.get_method() != "GET":  # what was asked for may have been done
                raise
        time.sleep(0.5)  # its database is busy
    return pytest.fail(f"{path}: the server only fails")
