"""The common part of chat models over HTTP: settings, request bodies from messages, and columns from answers.

`kind: openai` uses any endpoint with OpenAI's protocol, and `kind: vllm` a server that its worker starts. See
settings.py for columns, openai_client.py for retries and the causes of failures, response_log.py for the reuse of
answers after a crash.
"""

import abc
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, PrivateAttr, field_validator, model_validator

from overnight.tasks.infer.chat.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.chat.openai_client import Endpoint, RetryLimits
from overnight.tasks.infer.chat.rate_limiter import RateLimiter
from overnight.tasks.infer.chat.response_log import open_log
from overnight.tasks.infer.chat.settings import ChatSettings
from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome
from overnight.tasks.storage.location import Location

TRIES_OF_A_PREVIEW = 4  # in about 4 s, if the endpoint refuses the connection
ROWS_A_CALL = 16  # few: a call ends with its slowest row, and the next call's requests run meanwhile


class RemoteChat(ChatSettings):
    """The settings of a chat completion per row over HTTP, with many concurrent requests."""

    max_concurrent_requests: Annotated[
        PositiveInt,
        Field(
            description="The requests that a worker has under way at the same time.",
            json_schema_extra={"formerly": "requests_at_once"},
        ),
    ] = 32
    timeout_seconds: Annotated[
        float, Field(gt=0, description="The time in which the endpoint has to answer a request.")
    ] = 60
    retry_timeout_seconds: Annotated[
        float,
        Field(
            gt=0,
            description="The time for all tries of a row; less than the job's row_timeout_seconds.",
            json_schema_extra={"formerly": "patience_seconds"},
        ),
    ] = 240
    max_tries: Annotated[
        PositiveInt,
        Field(description="The tries of a request before its row is quarantined, if other requests succeed."),
    ] = 8
    extra_body: Annotated[
        dict[str, Any], Field(description="Further fields of each request; null removes a field.")
    ] = {}

    _gives_up: bool = PrivateAttr(default=False)

    operational: ClassVar[tuple[str, ...]] = (
        *("max_concurrent_requests", "timeout_seconds", "retry_timeout_seconds", "max_tries"),
    )

    @field_validator("extra_body")
    @classmethod
    def _answers_come_whole(cls, extra_body: dict[str, Any]) -> dict[str, Any]:
        if extra_body.get("stream"):
            raise ValueError("expected no stream: answers are read whole. Leave out stream")
        return extra_body

    @model_validator(mode="after")
    def _only_one_number_of_texts(self) -> "RemoteChat":
        if self.num_return_sequences > 1 and "n" in self.extra_body:
            raise ValueError("extra_body: n and num_return_sequences are the same. Leave out n")
        return self

    def draws(self) -> bool:
        return super().draws() or "temperature" in self.extra_body

    def forward_batch_size(self) -> int:
        return ROWS_A_CALL if self.batch_size == "auto" else self.batch_size

    def calls_at_once(self) -> int:
        return math.ceil(self.max_concurrent_requests / self.forward_batch_size()) + 1

    def tunes_batch_size(self) -> bool:
        return False

    def needs_warm_up(self) -> bool:
        return False

    def for_preview(self) -> "RemoteChat":
        copy = self.model_copy(update={"max_tries": min(self.max_tries, TRIES_OF_A_PREVIEW)})
        copy._gives_up = True
        return copy

    @abc.abstractmethod
    def body(self, messages: Any) -> dict[str, Any]:
        """Return the JSON object that is sent to the endpoint for one row's chat messages."""

    def plain_body(self, model: str, messages: Any) -> dict[str, Any]:
        """Return the request body for one row's chat `messages`, with the fields of OpenAI's protocol alone.

        `model` is the model's name at the endpoint. The setting `extra_body` then adds, changes or removes fields.
        """
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p if self.top_p < 1 else None,
            "seed": self.seed,
            "n": self.num_return_sequences if self.num_return_sequences > 1 else None,
            "response_format": self.output_schema
            and {"type": "json_schema", "json_schema": {"name": "answer", "schema": self.output_schema}},
        }
        return {name: value for name, value in (body | self.extra_body).items() if value is not None}

    def asking(
        self,
        url: str,
        key: str | None,
        log_place: Location | None,
        requests: float | None = None,
        tokens: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Predict:
        """Return a function that takes a batch, gets answers from the endpoint at `url`, and returns their columns.

        `key` is the API key; None sends no key. `headers` are sent with each request. The function sends at most
        `requests` requests and `tokens` tokens per minute; None sets no limit. The directory `log_place` keeps the
        answers for a resumed run; None keeps no answer.
        """
        limits = RetryLimits(self.timeout_seconds, self.retry_timeout_seconds, self.max_tries, self._gives_up)
        paces = RateLimiter(requests), RateLimiter(tokens)

        def make_endpoint() -> Endpoint:
            return Endpoint(url, key, self.max_concurrent_requests, limits, *paces, self.num_return_sequences, headers)

        asking = ConcurrentRequests(make_endpoint, open_log(log_place))

        def predict(batch: Batch) -> Outcome:
            bodies = [self.body(messages) for messages in self.messages(batch)]
            return self.outcome(asking.answers(batch["row_id"].tolist(), bodies))

        return predict
