"""The server of the suite: chats, embeddings and scores, with short waits between the tries of its client."""

from collections.abc import Iterator

import pytest

from overnight.tasks.infer.endpoint import client
from tests.tasks.infer.chat_server import server_of
from tests.tasks.infer.retrieval_server import RetrievalServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RetrievalServer]:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.05)
    with server_of(RetrievalServer()) as state:
        yield state
