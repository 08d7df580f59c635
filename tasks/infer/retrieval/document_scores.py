"""Scores of documents for a query by a server over HTTP: what an endpoint and vLLM have in common.

In: the columns that `query` names, and `documents_column`: a list of strings, or a string, which is one document. Out:
`scores`, a list of float64 in the order of the documents, empty for an empty list; `prompt_tokens` (int64); `cost` with
a price.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from overnight.tasks.config.settings import AdjustableText
from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.prompts import as_texts, filled, placeholders, texts
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.engine_counters import EnginePredict
from overnight.tasks.infer.predictor import Batch
from overnight.tasks.infer.retrieval.columns import bodies_of, failure, holds, token_columns
from overnight.tasks.infer.retrieval.rankings import Ranking, RankingRequests, dialect_of
from overnight.tasks.rows.result import Outcome

NO_DOCUMENTS = Ranking((), (), 0)
OF_OTHER_SCORES = ("top_n", "top_k")  # with them an endpoint leaves documents out


class DocumentScores(RemoteModel):
    """The settings of scores of a row's documents over HTTP."""

    query: Annotated[AdjustableText, Field(min_length=1, description="The query, with {column} for values.")]
    documents_column: Annotated[
        str, Field(description="The column that holds the documents: a list of texts, or one text.")
    ]

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
        return ["scores", "prompt_tokens", *(["cost"] if self.token_price() is not None else [])]

    def token_price(self) -> float | None:
        """Return the price of a million tokens; None for a server of the job's own."""
        return None

    def protocol(self) -> RankingRequests:
        return dialect_of("cohere")

    @abc.abstractmethod
    def fields(self, query: str, documents: Sequence[str]) -> Body:
        """Return the fields of the request for one row's documents that depend on the server."""

    def body(self, query: str, documents: Sequence[str]) -> Body:
        """Return the request for one row's documents."""
        fields = self.fields(query, documents) | self.extra_body
        return {name: value for name, value in fields.items() if value is not None}

    def asking(self, requests: ConcurrentRequests[Ranking]) -> EnginePredict:
        """Return the function that gets the scores of a batch by these requests."""

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
        columns = token_columns(tokens, self.token_price())
        return Outcome({"scores": pa.array(scores, pa.list_(pa.float64())), **columns}, failed=errors)
