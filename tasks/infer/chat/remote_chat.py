"""The common part of chat models over HTTP: request bodies from messages, and columns from answers.

`kind: openai` uses any endpoint with OpenAI's protocol, and `kind: vllm` a server that its worker starts.
"""

import abc
from collections.abc import Sequence
from typing import Any

from pydantic import field_validator, model_validator

from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.chat.settings import ChatSettings, Message
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome


class RemoteChat(RemoteModel, ChatSettings):
    """The settings of a chat completion per row over HTTP."""

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

    def dialect(self) -> ChatCompletions:
        return ChatCompletions(self.num_return_sequences)

    @abc.abstractmethod
    def body(self, messages: Any) -> Body:
        """Return the JSON object that is sent to the endpoint for one row's chat messages."""

    def plain_body(self, model: str, messages: Sequence[Message]) -> Body:
        """Return the request body for a row, with the fields of the dialect and `extra_body` alone."""
        body = self.dialect().body(model, messages, self)
        return {name: value for name, value in (body | self.extra_body).items() if value is not None}

    def bodies(self, batch: Batch) -> list[Body]:
        """Return the JSON object of each row's request."""
        return list(map(self.body, self.messages(batch)))

    def asking(self, requests: ConcurrentRequests[Any]) -> Predict:
        """Return the function that gets a batch's answers by these requests."""

        def predict(batch: Batch) -> Outcome:
            return self.outcome(requests.answers(batch["row_id"].tolist(), self.bodies(batch)))

        return predict
