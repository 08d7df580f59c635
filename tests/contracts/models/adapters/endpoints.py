"""Models behind an endpoint; what an endpoint may answer is held by the suite of endpoints."""

import contextlib
from pathlib import Path

from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.chat_models import some_words
from tests.tasks.infer.chat_server import chat_server

TEXTS = some_words(5)
SERVERS = contextlib.ExitStack()  # the fixture of the suite closes them


def openai(folder: Path) -> Case:
    server = SERVERS.enter_context(chat_server())
    expected = [{"generated_text": f"{text}|{text}"[::-1], "prompt_tokens": 7} for text in TEXTS]
    return Case({"base_url": server.url, "model": "small", "user": "{body}"}, {"body": TEXTS}, expected)


OPENAI = ModelLeaf({"an endpoint": openai}, column="body")
VLLM = ModelLeaf({}, column="body")
