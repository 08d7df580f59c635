"""Models behind an endpoint; what an endpoint may answer is held by the suite of endpoints."""

import contextlib
from pathlib import Path

from tests.contracts.models.case import Case, ModelLeaf
from tests.tasks.infer.chat_models import some_words
from tests.tasks.infer.chat_server import chat_server, server_of
from tests.tasks.infer.retrieval_server import RetrievalServer, score_of, tokens_of, vector_of

TEXTS = some_words(5)
SERVERS = contextlib.ExitStack()  # the fixture of the suite closes them


def openai(folder: Path) -> Case:
    server = SERVERS.enter_context(chat_server())
    expected = [{"generated_text": f"{text}|{text}"[::-1], "prompt_tokens": 7} for text in TEXTS]
    return Case({"base_url": server.url, "model": "small", "user": "{body}"}, {"body": TEXTS}, expected)


def endpoint_embedding(folder: Path) -> Case:
    server = SERVERS.enter_context(server_of(RetrievalServer()))
    expected = [{"embedding": vector_of(text), "prompt_tokens": tokens_of(text)} for text in TEXTS]
    settings = {"base_url": server.url, "model": "small", "text_column": "body", "inputs_per_request": 1}
    return Case(settings, {"body": TEXTS}, expected)


def rerank(folder: Path) -> Case:
    server = SERVERS.enter_context(server_of(RetrievalServer()))
    documents = [TEXTS[: number + 1] for number in range(len(TEXTS))]
    settings = {"base_url": server.url, "model": "small", "query": "{body}", "documents_column": "documents"}
    expected = []
    for query, texts in zip(TEXTS, documents, strict=True):
        expected.append({"scores": [score_of(query, text) for text in texts]})
    return Case(settings, {"body": TEXTS, "documents": documents}, expected)


OPENAI = ModelLeaf({"an endpoint": openai}, column="body")
ENDPOINT_EMBEDDING = ModelLeaf(
    {"an endpoint": endpoint_embedding}, column="body", wrong=[(3, "body: expected a text, found int64")]
)
RERANK = ModelLeaf({"an endpoint": rerank}, column="body")
VLLM = ModelLeaf({}, column="body")
