"""The common part of chat models over HTTP: request bodies from messages, and columns from answers.

`kind: openai` uses any endpoint with OpenAI's protocol, and `kind: vllm` a server that its worker starts.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import field_validator, model_validator

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.chat.prompts import fixed_text_after_columns
from overnight.tasks.infer.chat.settings import ChatSettings, Message, answer_schema
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome

CUT_OFF = ("length", "max_tokens", "model_length", "content_filter", "error")  # reasons of servers and gateways
WORTH_A_PREFIX = 1000  # characters, about 250 tokens; vLLM keeps blocks of 16 tokens, OpenAI at least 1,024


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

    def remarks(self) -> list[str]:
        templates = [text for text in (self.system, self.user) if isinstance(text, str)]
        characters = fixed_text_after_columns(templates)
        if characters < WORTH_A_PREFIX:
            return []
        return [
            f"{self.shown_name()}: {characters:,} characters of fixed text come behind the first column of the prompt, "
            "so each row computes and pays for them again. Put the fixed text before the columns: endpoints and vLLM "
            "keep the beginning that prompts share"
        ]

    def whole_answers(self) -> Callable[[Any], bool]:
        schema = answer_schema(self.output_schema)

        def is_whole(answer: Answer) -> bool:
            try:
                list(self._values(answer, schema))
            except RowError:
                return False
            return all(choice.finish_reason not in CUT_OFF for choice in answer.choices)

        return is_whole

    def asking(self, requests: ConcurrentRequests[Any]) -> Predict:
        """Return the function that gets a batch's answers by these requests."""

        def predict(batch: Batch) -> Outcome:
            bodies = list(map(self.body, self.messages(batch)))
            return self.outcome(requests.answers(batch["row_id"].tolist(), bodies))

        return predict
