"""The dialects of embeddings: OpenAI's `/embeddings` (also of vLLM, SGLang and gateways), and `/embed` of TEI.

A request has several texts. OpenAI's answer has an `index` for each vector, in any order; TEI's is a list of vectors.
Vectors are lists of numbers, or base64 of little-endian float32, whichever the request requires.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from overnight.tasks.errors import RowError
from overnight.tasks.infer.endpoint.client import CHARACTERS_A_TOKEN, Body
from overnight.tasks.infer.endpoint.json_answers import not_an_answer, payload_of, tokens_in

SPECIAL_TOKENS = 8  # at most, which a tokenizer adds to a text
EXPECTED = "embeddings"

Encoding = Literal["base64", "float"]


@dataclass(frozen=True)
class Embeddings:
    """The vectors of a request, or the one vector of a row, as the endpoint sends them.

    `indices` are the positions of their texts in the request, if the endpoint names them.
    """

    vectors: Sequence[Any]
    prompt_tokens: int | None
    indices: Sequence[Any] = ()

    @property
    def completion_tokens(self) -> int:
        return 0

    def in_order(self, count: int) -> list[Any]:
        """Return the vector of each of `count` texts; None for a text whose vector is not certain."""
        indices = list(self.indices)
        if not indices and len(self.vectors) == count:
            return list(self.vectors)
        vectors: list[Any] = [None] * count
        if not all(type(index) is int and 0 <= index < count for index in indices):
            return vectors  # such as numbers from 1
        for index, vector in zip(indices, self.vectors, strict=False):
            if indices.count(index) == 1:
                vectors[index] = vector
        return vectors

    def vector(self) -> np.ndarray:
        """Return a row's vector as float32. Raise `RowError` if the answer has another content."""
        if len(self.vectors) != 1:
            raise RowError(f"expected one vector as answer, found {len(self.vectors)}.")
        return decoded(self.vectors[0])


@dataclass
class EmbeddingRequests:
    """Requests for vectors of at most `rows` texts, which are in the field `texts` of the request."""

    path: str
    texts: str
    own_fields: Body  # of a request, which change no vector
    rows: int
    max_input_tokens: int | None = None

    def test_body(self, body: Body) -> Body:
        return body | {self.texts: ["Hi"]}

    def most_tokens(self, body: Body) -> float:
        return sum(map(len, body[self.texts])) / CHARACTERS_A_TOKEN

    def answer(self, content: bytes) -> Embeddings:
        """Raise `Fault` also for an error with status 200, and for a body without vectors."""
        payload = payload_of(content, EXPECTED)
        items = payload.get("data") if isinstance(payload, dict) else payload
        if not isinstance(items, list) or not all(isinstance(item, dict | list) for item in items):
            raise not_an_answer(payload, EXPECTED)
        vectors, indices = [], []
        for item in items:
            if isinstance(item, dict):
                indices.append(item.get("index"))
                vectors.append(item.get("embedding"))
            else:
                vectors.append(item)
        if len(indices) != len(vectors) or indices.count(None) == len(indices):
            indices = []
        return Embeddings(vectors, tokens_in(payload, "prompt_tokens", "total_tokens"), indices)

    def kept(self, fields: dict[str, Any]) -> Embeddings:
        return Embeddings(**fields)

    def fits(self, bodies: Sequence[Body]) -> bool:
        """Texts that the endpoint may cut have a request of their own, which counts their tokens."""
        may_be_cut = any(self.may_be_cut(body[self.texts][0]) for body in bodies)
        return len(bodies) <= self.rows and not may_be_cut

    def may_be_cut(self, text: str) -> bool:
        """Return True if a text may have `max_input_tokens`: a token has at least one byte."""
        return self.max_input_tokens is not None and len(text.encode()) + SPECIAL_TOKENS >= self.max_input_tokens

    def joined(self, bodies: Sequence[Body]) -> Body:
        texts = [body[self.texts][0] for body in bodies]
        return bodies[0] | {self.texts: texts} | self.own_fields

    def parts(self, answer: Embeddings, bodies: Sequence[Body]) -> list[Embeddings | None]:
        """Return the vector of each text, and its share of the tokens by its bytes."""
        if len(bodies) == 1:
            return [Embeddings(answer.vectors, answer.prompt_tokens)]
        vectors = answer.in_order(len(bodies))
        sizes = []
        for body, vector in zip(bodies, vectors, strict=True):
            sizes.append(0 if vector is None else len(body[self.texts][0].encode()) + 1)
        parts: list[Embeddings | None] = []
        for vector, tokens in zip(vectors, shares(answer.prompt_tokens, sizes), strict=True):
            parts.append(None if vector is None else Embeddings([vector], tokens))
        return parts


def dialect_of(
    name: Literal["openai", "tei"], rows: int, encoding: Encoding, max_input_tokens: int | None
) -> EmbeddingRequests:
    """Return the dialect of this name. Only a request for base64 names its encoding, because lists are the default."""
    if name == "tei":
        return EmbeddingRequests("/embed", "inputs", {}, rows, max_input_tokens)
    own_fields = {"encoding_format": encoding} if encoding == "base64" else {}
    return EmbeddingRequests("/embeddings", "input", own_fields, rows, max_input_tokens)


def shares(tokens: int | None, sizes: Sequence[int]) -> list[int | None]:
    """Return the tokens of a request in shares by these sizes, whole numbers whose sum is `tokens`."""
    if tokens is None:
        return [None] * len(sizes)
    ends = np.cumsum(sizes, dtype=float)
    if not len(ends) or not ends[-1]:
        return [0] * len(sizes)
    edges = np.round(ends / ends[-1] * tokens).astype(int)
    return np.diff(edges, prepend=0).tolist()


def decoded(vector: Any) -> np.ndarray:
    """Return a vector that an endpoint sends as float32. Raise `RowError` if it is not one of finite numbers."""
    try:
        if isinstance(vector, str):
            numbers = np.frombuffer(base64.b64decode(vector, validate=True), "<f4").astype(np.float32)
        else:
            with np.errstate(over="ignore"):
                numbers = np.array(vector, np.float32)
    except (ValueError, TypeError, OverflowError, binascii.Error):
        raise RowError(f"expected a vector as answer, found {str(vector)[:80]!r}.") from None
    if numbers.ndim != 1 or not len(numbers):
        raise RowError(f"expected a vector as answer, found {str(vector)[:80]!r}.")
    if not np.isfinite(numbers).all():
        raise RowError("expected a vector of finite numbers as answer, found NaN or infinity.")
    return numbers
