"""A server for each test, and short waits between tries."""

from collections.abc import Iterator

import pytest

from overnight.tasks.infer.chat import openai_client
from tests.tasks.infer.chat_server import ChatServer, chat_server


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_client, "FIRST_WAIT_SECONDS", 0.05)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as state:
        yield state
