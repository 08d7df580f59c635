"""The test server with the routes of search: `/embeddings` of OpenAI, `/rerank` of vLLM and SGLang, and TEI's own."""

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.tasks.infer.chat_server import ChatServer, Reply

ROUTES = ("/v1/embeddings", "/embed", "/rerank")


def vector_of(text: str, size: int = 8) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(size).astype(np.float32)


def score_of(query: str, document: str) -> float:
    return zlib.crc32(f"{query}|{document}".encode()) / 2**32


def tokens_of(text: str) -> int:
    return len(text.split()) + 2


def base64_of(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


@dataclass
class RetrievalServer(ChatServer):
    """A server of chats, embeddings and scores. `changed` changes an answer before it is sent.

    `most_texts` and `longest` are the limits of a server as TEI has them: texts in a request, tokens in a text. Longer
    texts are cut without a word, unless the request has `truncate: false`.
    """

    size: int = 8
    most_texts: int = 2048
    longest: int = 8192
    changed: Callable[[Any], Any] = lambda answer: answer
    is_sglang: bool = False

    def serves(self, path: str) -> bool:
        return path.endswith(ROUTES) or super().serves(path)

    def asked(self, body: dict[str, Any]) -> list[str]:
        if "messages" in body:
            return super().asked(body)
        return [body["query"]] if "query" in body else list(body.get("input") or body["inputs"])

    def reply(self, fault: Any, body: dict[str, Any]) -> Reply:
        if "messages" in body or fault is not None:
            return super().reply(fault, body)
        texts = body.get("documents") or body.get("texts") or self.asked(body)
        if len(texts) > self.most_texts:
            words = f"batch size {len(texts)} > maximum allowed batch size {self.most_texts}"
            return Reply(413, {"error": words, "error_type": "Validation"})
        for text in texts:
            if body.get("truncate") is False and tokens_of(text) > self.longest:
                words = f"`inputs` must have less than {self.longest} tokens. Given: {tokens_of(text)}"
                return Reply(413, {"error": words, "error_type": "Validation"})
        answer = self.scores(body, texts) if "query" in body else self.embeddings(body, texts)
        return Reply(200, self.changed(answer), seconds=self.seconds)

    def embeddings(self, body: dict[str, Any], texts: list[str]) -> Any:
        vectors = [vector_of(text, body.get("dimensions", self.size)) for text in texts]
        if "inputs" in body:
            return [vector.tolist() for vector in vectors]
        data = []
        for index, vector in enumerate(vectors):
            value = base64_of(vector) if body.get("encoding_format") == "base64" else vector.tolist()
            data.append({"object": "embedding", "index": index, "embedding": value})
        tokens = sum(min(tokens_of(text), self.longest) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}

    def scores(self, body: dict[str, Any], texts: list[str]) -> Any:
        query = body["query"]
        scores = [{"index": index, "score": score_of(query, text)} for index, text in enumerate(texts)]
        scores.sort(key=lambda entry: -entry["score"])
        if "texts" in body or self.is_sglang:
            return scores
        tokens = sum(tokens_of(query) + tokens_of(text) for text in texts)
        results = []
        for entry in scores:
            document = {"text": texts[int(entry["index"])]}
            results.append({"index": entry["index"], "document": document, "relevance_score": entry["score"]})
        return {"id": "1", "model": body["model"], "results": results, "usage": {"total_tokens": tokens}}
