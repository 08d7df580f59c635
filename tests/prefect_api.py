"""Questions to a Prefect server, as anything that speaks HTTP asks them."""

import base64
import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

import pytest


def _csrf(api: str, login: str) -> dict[str, str]:
    """The headers with a token; none for a server that was started without CSRF tokens."""
    try:
        token = ask(api, "/csrf-token?client=tests", login=login)["token"]
    except urllib.error.HTTPError as error:
        if error.code != 422:
            raise
        return {}
    return {"prefect-csrf-client": "tests", "prefect-csrf-token": token}


def ask(api: str, path: str, body: Any = None, method: str | None = None, login: str | None = None) -> Any:
    """The Prefect server's answer: to a GET, with `body` to a POST, or to `method`; None where it has no content.

    `login` is the USER:PASSWORD that the server needs, with a CSRF token for each change; by default that of the
    session's server, if there is one. An empty text is no login.
    """
    headers = {"content-type": "application/json"}
    login = os.environ.get("PREFECT_API_AUTH_STRING", "") if login is None else login
    if login:
        headers["authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        if body is not None or method:
            headers |= _csrf(api, login)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{api}{path}", data, headers, method=method)
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
