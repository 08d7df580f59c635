"""Scores of documents for a query, by a reranker behind an endpoint: vLLM, SGLang, Cohere, Jina, Voyage, TEI.

In: the columns that `query` names, and `documents_column`: a list of strings, or a string, which is one document. Out:
`scores`, a list of float64 in the order of the documents, empty for an empty list; `prompt_tokens` (int64); `cost` with
a price.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.prompts import as_texts, filled, placeholders, texts
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import Service
from overnight.tasks.infer.engine_counters import EnginePredict
from overnight.tasks.infer.predictor import Batch, Offer, Predict
from overnight.tasks.infer.retrieval.columns import bodies_of, failure, holds, token_columns
from overnight.tasks.infer.retrieval.rankings import Ranking, RankingRequests, dialect_of
from overnight.tasks.rows.result import Outcome
from overnight.tasks.storage.location import Location

NO_DOCUMENTS = Ranking((), (), 0)
OF_OTHER_SCORES = ("top_n", "top_k")  # with them an endpoint leaves documents out


class Rerank(Service):
    """Requests scores of a row's documents for its query."""

    kind: Literal["rerank"] = "rerank"
    offer: ClassVar[Offer] = Offer(
        "scores of each text for a query, by a reranker behind an endpoint",
        "text",
        "BAAI/bge-reranker-v2-m3",
        lambda column: {"query": "What is good?", "documents_column": column},
    )
    model: Annotated[str, Field(min_length=1, description="The model's name at the endpoint.")]
    base_url: Annotated[str, Field(pattern=r"^(https?://|\$\{)", description="The endpoint's URL, without /rerank.")]
    query: Annotated[AdjustableText, Field(min_length=1, description="The query, with {column} for values.")]
    documents_column: Annotated[
        str, Field(description="The column that holds the documents: a list of texts, or one text.")
    ]
    api: Annotated[
        Literal["cohere", "tei"],
        Field(
            description="The requests: cohere (also vLLM, SGLang, Jina, Voyage), or tei (text-embeddings-inference), "
            "which refuses a document that is too long instead of cutting it."
        ),
    ] = "cohere"

    @field_validator("extra_body")
    @classmethod
    def _scores_all_documents(cls, extra_body: dict[str, Any]) -> dict[str, Any]:
        for name in OF_OTHER_SCORES:
            if name in extra_body:
                raise ValueError(f"expected no {name}: each document gets its score. Leave {name} out")
        return extra_body

    @field_validator("query")
    @classmethod
    def _names_columns(cls, query: str) -> str:
        placeholders(query, "query")
        return query

    def inputs(self) -> list[str]:
        return list(dict.fromkeys([*self.prompt_columns(), "row_id"]))

    def prompt_columns(self) -> list[str]:
        return [*placeholders(self.query, "query"), self.documents_column]

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        if name != self.documents_column and name in self.prompt_columns():
            return as_texts(column, name)
        return super().given(name, column)

    def outputs_made(self) -> list[str]:
        return ["scores", "prompt_tokens", *(["cost"] if self.has_cost() else [])]

    def protocol(self) -> RankingRequests:
        return dialect_of(self.api)

    def body(self, query: str, documents: Sequence[str]) -> Body:
        """Return the request for one row's documents."""
        fields: Body = {"model": self.model, "query": query, "documents": documents}
        if self.api == "tei":
            fields = {"query": query, "texts": documents, "truncate": False}
        return {name: value for name, value in (fields | self.extra_body).items() if value is not None}

    def load(self) -> Predict:
        return self.load_with(None)

    def load_with(self, log_place: Location | None) -> Predict:
        requests: ConcurrentRequests[Ranking] = self.requests_to_service(log_place)

        def predict(batch: Batch) -> Outcome:
            bodies = bodies_of(lambda row: self._body_or_nothing(batch, row), len(batch["row_id"]))
            return self._outcome(requests.answers(batch["row_id"].tolist(), bodies), bodies)

        return EnginePredict(predict, requests.counters)

    def _body_or_nothing(self, batch: Batch, row: int) -> Body | Ranking:
        """Return the request of a row, or the answer without a request if the row has no documents."""
        [query] = filled(self.query, {name: values[row : row + 1] for name, values in batch.items()}, "query")
        documents = batch[self.documents_column][row]
        if isinstance(documents, str):
            documents = [documents]
        if not isinstance(documents, list | tuple | np.ndarray):
            raise RowError(f"{self.documents_column}: expected texts, found {documents!r:.80}.")
        if len(documents) == 0:
            return NO_DOCUMENTS
        return self.body(query, texts(documents, self.documents_column))

    def whole_answers(self) -> Callable[[Body, Ranking], bool]:
        return holds(self._scores)

    def _scores(self, body: Body, answer: Ranking) -> list[float]:
        return answer.in_order(len(body[self.protocol().documents]))

    def _outcome(self, answers: Sequence[Ranking | Exception], bodies: Sequence[Any]) -> Outcome:
        scores: list[list[float] | None] = [None] * len(answers)
        tokens: list[int | None] = [None] * len(answers)
        errors: dict[int, Exception] = {}
        for row, answer in enumerate(answers):
            try:
                if isinstance(answer, Exception):
                    raise answer
                scores[row] = [] if answer is NO_DOCUMENTS else self._scores(bodies[row], answer)
                tokens[row] = answer.prompt_tokens
            except RowError as error:
                errors[row] = failure(error, answer)
        columns = token_columns(tokens, self.price_per_million_input_tokens)
        return Outcome({"scores": pa.array(scores, pa.list_(pa.float64())), **columns}, failed=errors)
