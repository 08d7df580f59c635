"""The common part of chat models over HTTP: settings, request bodies from messages, and columns from answers.

`kind: openai` uses any endpoint with OpenAI's protocol, and `kind: vllm` a server that its worker
starts. See endpoint.py for retries and the causes of failures, response_log.py for the reuse of
answers after a crash.
"""

import abc
import asyncio
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, PrivateAttr, field_validator, model_validator

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.chat.endpoint import Body, Dialect, Endpoint, Limits
from overnight.tasks.infer.chat.response_log import NoLog, key_of, open_log
from overnight.tasks.infer.chat.settings import ChatSettings, Message
from overnight.tasks.infer.chat.transport import Transport
from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome
from overnight.tasks.storage.location import Location

TRIES_OF_A_PREVIEW = 4  # in about 4 s, if the endpoint refuses the connection
ROWS_A_CALL = 16  # few: a call ends with its slowest row, and the next call's requests run meanwhile

ConcurrentRequestsLimit = Annotated[
    PositiveInt,
    Field(
        description="The requests that a worker has under way at the same time.",
        json_schema_extra={"formerly": "requests_at_once"},
    ),
]


class RemoteChat(ChatSettings):
    """The settings of a chat completion per row over HTTP, with many concurrent requests."""

    max_concurrent_requests: ConcurrentRequestsLimit = 32
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

    dialect: ClassVar[Dialect] = ChatCompletions()

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
    def body(self, messages: Any) -> Body:
        """Return the JSON object that is sent to the endpoint for one row's chat messages."""

    def plain_body(self, model: str, messages: Sequence[Message]) -> Body:
        """Return the request body for a row, with the fields of the dialect and `extra_body` alone."""
        body = self.dialect.body(model, messages, self)
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
        """Return the function that gets a batch's answers from the endpoint at `url`.

        `requests` and `tokens` are limits per minute. The directory `log_place` keeps the answers.
        """
        limits = Limits(
            self.max_concurrent_requests,
            self.timeout_seconds,
            self.retry_timeout_seconds,
            self.max_tries,
            texts_per_answer=self.num_return_sequences,
            gives_up=self._gives_up,
            requests_per_minute=requests,
            tokens_per_minute=tokens,
        )
        transport = Transport(url, self.dialect.path, key, headers or {}, self.max_concurrent_requests)
        endpoint = Endpoint(self.dialect, transport, limits)
        requests_of_rows = ConcurrentRequests(endpoint, open_log(log_place))

        def predict(batch: Batch) -> Outcome:
            bodies = list(map(self.body, self.messages(batch)))
            return self.outcome(requests_of_rows.answers(batch["row_id"].tolist(), bodies))

        return predict


class ConcurrentRequests:
    """Sends the requests of several threads to one endpoint, by an event loop in a thread of its own."""

    def __init__(self, endpoint: Endpoint, log: NoLog) -> None:
        self._endpoint, self._log, self._loop = endpoint, log, asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="requests").start()

    def answers(self, row_ids: Sequence[str], bodies: Sequence[Body]) -> list[Answer | Exception]:
        """Return for each row the answer of its request, or its own `RowError`.

        An answer that is in the log is not requested again. A failure that is not a row's is raised.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(self._answers(row_ids, bodies), self._loop)
            answers = future.result()
        except BaseException:
            self._log.flush(now=True)
            raise
        self._log.flush()
        return answers

    async def _answers(self, row_ids: Sequence[str], bodies: Sequence[Body]) -> list[Answer | Exception]:
        rows = zip(row_ids, bodies, strict=True)
        tasks = [asyncio.ensure_future(self._answer(row_id, body)) for row_id, body in rows]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # after an error that is not a row's fault

    async def _answer(self, row_id: str, body: Body) -> Answer | Exception:
        key = key_of(row_id, body)
        if fields := self._log.find(key):
            return Answer(**fields)
        try:
            answer = await self._endpoint.answer(body)
        except RowError as error:
            return error
        self._log.add(key, asdict(answer))
        return answer
