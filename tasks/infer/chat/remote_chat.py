"""The common part of chat models over HTTP: request bodies from messages, and columns from answers.

`kind: openai` uses any endpoint with OpenAI's protocol, and `kind: vllm` a server that its worker starts.
"""

import abc
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from overnight.tasks.infer.chat.answer_form import AnswerForm
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.infer.chat.label_scores import MOST_TOP_LOGPROBS, refuse_ambiguous
from overnight.tasks.infer.chat.repairs import repaired
from overnight.tasks.infer.chat.settings import ChatSettings, Message
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome


class RemoteChat(RemoteModel, ChatSettings):
    """The settings of a chat completion per row over HTTP."""

    repairs: Annotated[
        int,
        Field(ge=0, le=1, description="With 1, the model gets an answer that does not fit back with the error, once."),
    ] = 0
    tools: Annotated[
        list[dict[str, Any]],
        Field(description="Tools that the model may call, as the endpoint describes them; calls are in tool_calls."),
    ] = []

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

    @model_validator(mode="after")
    def _repairs_and_tools_fit(self) -> "RemoteChat":
        has_form = self.answer is not None or self.output_schema is not None
        if self.repairs and (not has_form or self.num_return_sequences > 1):
            raise ValueError("repairs: expected output_schema or answer, and one text for each row")
        if self.tools and has_form:
            raise ValueError("tools: a call of a tool does not have the form of output_schema or answer. Leave one out")
        if self.label_scores and self.answer:
            refuse_ambiguous(self.answer.choices or ())
        return self

    def draws(self) -> bool:
        return super().draws() or "temperature" in self.extra_body

    def has_tools(self) -> bool:
        return bool(self.tools)

    def dialect(self) -> ChatCompletions:
        return ChatCompletions(self.num_return_sequences, self.has_tools())

    @abc.abstractmethod
    def body(self, messages: Any) -> Body:
        """Return the JSON object that is sent to the endpoint for one row's chat messages."""

    def plain_body(self, model: str, messages: Sequence[Message]) -> Body:
        """Return the request body for a row, with the fields of the dialect and `extra_body` alone."""
        body = self.dialect().body(model, messages, self) | self.form_fields()
        return {name: value for name, value in (body | self.extra_body).items() if value is not None}

    def form_fields(self) -> Body:
        """Return the fields of a request that the form of its answer requires."""
        fields: Body = {}
        if self.tools:
            fields["tools"] = self.tools
        if self.logprobs or self.label_scores:
            fields["logprobs"] = True
        if self.label_scores:
            fields["top_logprobs"] = MOST_TOP_LOGPROBS
        if self.answer:
            fields |= self.answer_fields(self.answer)
        return fields

    @abc.abstractmethod
    def answer_fields(self, form: AnswerForm) -> Body:
        """Return the fields of a request that make the endpoint keep to `form`; without any, answers are checked."""

    def asking(self, requests: ConcurrentRequests[Any]) -> Predict:
        """Return the function that gets a batch's answers by these requests."""

        def predict(batch: Batch) -> Outcome:
            row_ids, bodies = batch["row_id"].tolist(), list(map(self.body, self.messages(batch)))
            answers = requests.answers(row_ids, bodies)
            if self.repairs:
                answers = repaired(requests, row_ids, bodies, answers, self.misfit)
            return self.outcome(answers)

        return predict
