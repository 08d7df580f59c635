"""Embeddings of texts by a server over HTTP: what an endpoint and vLLM have in common.

In: `text_column`, strings, or the columns that `prompt` names. Out: `embedding`, float32 N x D; `prompt_tokens` (int64)
as the server counts them. The texts of a request share its tokens by their bytes. With a price there is also `cost`.
"""

import abc
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, field_validator

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.chat.prompts import as_texts, filled, placeholders, texts
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.engine_counters import EnginePredict
from overnight.tasks.infer.predictor import Batch
from overnight.tasks.infer.retrieval.columns import bodies_of, failure, holds, token_columns
from overnight.tasks.infer.retrieval.embeddings import EmbeddingRequests, Embeddings, Encoding, dialect_of
from overnight.tasks.rows.result import Outcome

REQUESTS_A_CALL = 4


class TextVectors(RemoteModel):
    """The settings of embeddings of texts over HTTP."""

    text_column: Annotated[str, Field(description="The column that holds the texts.")]
    prompt: Annotated[
        AdjustableText | None,
        Field(description="The text that is embedded, with {column} for values; default: the text alone."),
    ] = None
    dimensions: Annotated[
        PositiveInt | None, Field(description="The numbers of a vector; default: those of the model.")
    ] = None
    inputs_per_request: Annotated[PositiveInt, Field(description="The texts that share a request.")] = 32
    max_input_tokens: Annotated[
        PositiveInt | None,
        Field(
            description="The tokens that a server reads of a text, if it cuts longer texts silently: a row whose text "
            "reaches them fails. Long texts then have a request of their own."
        ),
    ] = None
    encoding: Annotated[
        Encoding,
        Field(description="The form of vectors in answers. float is larger, and for servers that refuse base64."),
    ] = "base64"

    operational: ClassVar[tuple[str, ...]] = ("inputs_per_request", "encoding")

    @field_validator("prompt")
    @classmethod
    def _names_columns(cls, prompt: str | None) -> str | None:
        placeholders(prompt or "")
        return prompt

    def inputs(self) -> list[str]:
        return list(dict.fromkeys([self.text_column, *self.prompt_columns(), "row_id"]))

    def prompt_columns(self) -> list[str]:
        return placeholders(self.prompt or "")

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        if name in self.prompt_columns():
            return as_texts(column, name)
        return super().given(name, column)

    def outputs_made(self) -> list[str]:
        return ["embedding", "prompt_tokens", *(["cost"] if self.token_price() is not None else [])]

    def token_price(self) -> float | None:
        """Return the price of a million tokens; None for a server of the job's own."""
        return None

    def forward_batch_size(self) -> int:
        return REQUESTS_A_CALL * self.inputs_per_request if self.batch_size == "auto" else self.batch_size

    def rows_per_request(self) -> int:
        return self.inputs_per_request

    def calls_at_once(self) -> int:
        return math.ceil(self.max_concurrent_requests * self.inputs_per_request / self.forward_batch_size()) + 1

    def protocol(self) -> EmbeddingRequests:
        return dialect_of("openai", self.inputs_per_request, self.encoding, self.max_input_tokens)

    def grouping(self) -> EmbeddingRequests:
        return self.protocol()

    @abc.abstractmethod
    def fields(self, text: str) -> Body:
        """Return the fields of a request for one text that depend on the server."""

    def body(self, text: str) -> Body:
        """Return the request for one text."""
        fields = self.fields(text)
        if self.dimensions:
            fields["dimensions"] = self.dimensions
        return {name: value for name, value in (fields | self.extra_body).items() if value is not None}

    def asking(self, requests: ConcurrentRequests[Embeddings]) -> EnginePredict:
        """Return the function that gets a batch's vectors by these requests."""
        lengths = VectorLength(self.dimensions, requests.earlier_answer())

        def predict(batch: Batch) -> Outcome:
            bodies = bodies_of(lambda row: self.body(self._text(batch, row)), len(batch["row_id"]))
            answers = requests.answers(batch["row_id"].tolist(), bodies)
            return self._outcome(answers, bodies, lengths)

        return EnginePredict(predict, requests.counters)

    def _text(self, batch: Batch, row: int) -> str:
        if self.prompt is None:
            return texts(batch[self.text_column][row : row + 1], self.text_column)[0]
        return filled(self.prompt, {name: values[row : row + 1] for name, values in batch.items()})[0]

    def _outcome(
        self, answers: Sequence[Embeddings | Exception], bodies: Sequence[Any], lengths: "VectorLength"
    ) -> Outcome:
        vectors = np.empty(len(answers), object)
        tokens: list[int | None] = [None] * len(answers)
        errors: dict[int, Exception] = {}
        for row, answer in enumerate(answers):
            try:
                if isinstance(answer, Exception):
                    raise answer
                vectors[row] = lengths.checked(self._vector(bodies[row], answer))
                tokens[row] = answer.prompt_tokens
            except RowError as error:
                errors[row] = failure(error, answer)
        columns = {"embedding": vectors, **token_columns(tokens, self.token_price())}
        return Outcome(columns, failed=errors)

    def whole_answers(self) -> Callable[[Body, Embeddings], bool]:
        return holds(self._vector)

    def _vector(self, body: Body, answer: Embeddings) -> np.ndarray:
        """Return a row's vector. Raise `RowError` if the endpoint may have read only the beginning of its text."""
        dialect, limit = self.protocol(), self.max_input_tokens
        is_long = limit is not None and dialect.may_be_cut(body[dialect.texts][0])
        if limit and is_long and (answer.prompt_tokens is None or answer.prompt_tokens >= limit):
            raise RowError(
                f"expected a text of fewer than {limit} tokens (max_input_tokens), found {answer.prompt_tokens}: the "
                "endpoint may have cut it. Split the text before the model (split_text)."
            )
        return answer.vector()


class VectorLength:
    """The one length that all vectors of a run have: that of `dimensions`, or of the run's first answer."""

    def __init__(self, dimensions: int | None, earlier: Embeddings | None) -> None:
        self._length, self._origin = dimensions, f"dimensions: {dimensions}"
        if dimensions is None and earlier is not None:
            with contextlib.suppress(RowError):
                self.checked(earlier.vector())

    def checked(self, vector: np.ndarray) -> np.ndarray:
        """Return the vector. Raise `JobError` if its length differs."""
        if self._length is None:
            self._length, self._origin = len(vector), "the first answers of this run"
        if len(vector) != self._length:
            raise JobError(
                f"expected vectors of {self._length} numbers ({self._origin}), found one of {len(vector)}. The "
                "endpoint may have another model than before, and reuse may have answers of that one: correct model or "
                "dimensions, and run with --force.",
                "infer",
            )
        return vector
