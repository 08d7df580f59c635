"""A server of chat completions, with short waits between the tries of its client."""

from collections.abc import Iterator

import pytest

from overnight.tasks.infer.endpoint import client
from tests.tasks.infer.chat_server import ChatServer, chat_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.05)
    with chat_server() as state:
        yield state
