"""The common part of chat models over HTTP: request bodies from messages, and columns from answers.

`kind: openai` uses any endpoint with OpenAI's protocol, and `kind: vllm` a server that its worker starts.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.config.settings import AdjustableFlag
from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer
from overnight.tasks.infer.chat.answer_form import AnswerForm
from overnight.tasks.infer.chat.chat_completions import ChatCompletions, ChatDialect
from overnight.tasks.infer.chat.gemini_content import CONFIG
from overnight.tasks.infer.chat.label_scores import MOST_TOP_LOGPROBS, refuse_ambiguous
from overnight.tasks.infer.chat.media import as_sent
from overnight.tasks.infer.chat.messages import MEDIA, Message, parts_of
from overnight.tasks.infer.chat.prompts import fixed_text_after_columns
from overnight.tasks.infer.chat.repairs import repaired
from overnight.tasks.infer.chat.request_fields import FAMILIES, RequestFields, strict_problem
from overnight.tasks.infer.chat.row_settings import MODEL, values_of_row
from overnight.tasks.infer.chat.settings import ChatSettings, ReasoningSettings, answer_schema
from overnight.tasks.infer.endpoint.client import Body
from overnight.tasks.infer.endpoint.concurrent_requests import ConcurrentRequests
from overnight.tasks.infer.endpoint.settings import RemoteModel
from overnight.tasks.infer.engine_counters import EnginePredict
from overnight.tasks.infer.predictor import Batch, Predict
from overnight.tasks.rows.result import Outcome

CUT_OFF = ("length", "max_tokens", "model_length", "content_filter", "error")  # reasons of servers and gateways
WORTH_A_PREFIX = 1000  # characters, about 250 tokens; vLLM keeps blocks of 16 tokens, OpenAI at least 1,024


class RemoteChat(RemoteModel, ChatSettings):
    """The settings of a chat completion per row over HTTP."""

    reasoning: Annotated[
        AdjustableFlag | ReasoningSettings,
        Field(
            description="Puts a model's reasoning (<think>) into the column reasoning, apart from the answer. A "
            "mapping also sets how much it reasons, and adds the column reasoning_tokens."
        ),
    ] = False
    image_as: Annotated[
        Literal["data", "url"],
        Field(
            description="How images travel: inside the request (data), or as links of https:// and signed links of "
            "objects in S3 (url)."
        ),
    ] = "data"
    max_side: Annotated[
        PositiveInt | None,
        Field(
            description="The most pixels of an image's longer side: larger ones are scaled down before they are sent."
        ),
    ] = None
    by_row_models: Annotated[
        list[str], Field(description="The names that the column of model in by_row may have, such as LoRA adapters.")
    ] = []

    repairs: Annotated[
        int,
        Field(ge=0, le=1, description="With 1, the model gets an answer that does not fit back with the error, once."),
    ] = 0
    tools: Annotated[
        list[dict[str, Any]],
        Field(description="Tools that the model may call, as the endpoint describes them; calls are in tool_calls."),
    ] = []

    takes: ClassVar[tuple[str, ...]] = MEDIA

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
    def _rows_have_settings_of_their_own(self) -> Self:
        if (self.by_row.model is not None) != bool(self.by_row_models):
            raise ValueError(
                "by_row_models: expected the names of models beside model in by_row, and only there. Set both, or none"
            )
        fields = self.request_fields()
        names = {"max_new_tokens": fields.limit, "seed": fields.seed}
        if twice := sorted({names.get(setting, setting) for setting in self.by_row.columns()} & {*self.extra_body}):
            raise ValueError(f"extra_body: by_row already sets {', '.join(twice)}. Leave one of them out")
        return self

    @model_validator(mode="after")
    def _fields_exist(self) -> Self:
        budget = self.reasoning.budget_tokens if isinstance(self.reasoning, ReasoningSettings) else None
        if budget and not self.request_fields().budget:
            families = [name for name, fields in FAMILIES.items() if fields.budget]
            raise ValueError(
                f"reasoning: expected no budget_tokens: this server's requests have no field for them, those of "
                f"{', '.join(families)} do. Set dialect, or put the server's own field into extra_body"
            )
        return self

    @model_validator(mode="after")
    def _schema_is_strict(self) -> Self:
        if not (self.output_schema and self.request_fields().is_strict):
            return self
        if problem := strict_problem(self.output_schema):
            raise ValueError(
                f"{problem}, because this dialect's schemas are strict. Complete the schema, or leave dialect out"
            )
        return self

    @model_validator(mode="after")
    def _repairs_and_tools_fit(self) -> Self:
        has_form = self.answer is not None or self.output_schema is not None
        if self.repairs and (not has_form or self.num_return_sequences > 1):
            raise ValueError("repairs: expected output_schema or answer, and one text for each row")
        if self.tools and (has_form or self.keep_rule()):
            raise ValueError("tools: expected no output_schema, answer or keep, which a call of a tool does not fit")
        if self.label_scores and self.reasoning is True:
            raise ValueError("label_scores: expected no reasoning: the first token would be one of it, not of a choice")
        if self.label_scores and self.answer:
            refuse_ambiguous(self.answer.choices or ())
        return self

    def draws(self) -> bool:
        return super().draws() or "temperature" in self.extra_body

    def is_random(self) -> bool:
        return self.draws()  # a server need not respect a seed

    def has_tools(self) -> bool:
        return bool(self.tools)

    def most_answer_tokens(self) -> int:
        return self.max_new_tokens * self.num_return_sequences

    def request_fields(self) -> RequestFields:
        """Return the names of the fields that the server takes."""
        return FAMILIES["any"]

    def protocol(self) -> ChatDialect:
        return ChatCompletions(self.num_return_sequences, self.request_fields(), self.has_tools())

    @abc.abstractmethod
    def body(self, messages: Any) -> Body:
        """Return the JSON object that is sent to the endpoint for one row's chat messages."""

    def plain_body(self, model: str, messages: Sequence[Message]) -> Body:
        """Return the request body for a row, with the fields of the dialect and `extra_body` alone."""
        body = self.protocol().body(model, messages, self) | self.form_fields()
        extra = self.extra_body
        if CONFIG in body and CONFIG in extra:
            extra = {**extra, CONFIG: body[CONFIG] | extra[CONFIG]}
        return {name: value for name, value in (body | extra).items() if value is not None}

    def body_of_row(self, row: Batch) -> Body:
        """Return the request body for a batch of one row. Raise `RowError` for a wrong value."""
        [messages] = self.conversations(row)
        values = {name: column[0] for name, column in row.items()}
        own = values_of_row(self.by_row, self.by_row_models, values, type(self))
        model = own.pop(MODEL, None)
        body = self.model_copy(update=own).body(as_sent(messages, self.image_as, self.max_side))
        return body if model is None else {**body, MODEL: model}

    def bodies(self, batch: Batch) -> list[Body | RowError]:
        """Return the JSON object of each row's request, or the row's own failure."""
        bodies: list[Body | RowError] = []
        for row in range(len(batch["row_id"])):
            try:
                bodies.append(self.body_of_row({name: column[row : row + 1] for name, column in batch.items()}))
            except RowError as error:
                bodies.append(error)
        return bodies

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

    def answer_fields(self, form: AnswerForm) -> Body:
        """Return the fields of a request that make the endpoint keep to `form`; without any, answers are checked."""
        if not self.request_fields().has_forms:
            return {}
        [(name, value)] = form.model_dump(mode="json", exclude_none=True).items()
        return {"structured_outputs": {name.replace("choices", "choice"): value}}

    def remarks(self) -> list[str]:
        templates = []
        for part in (*parts_of(self.system), *parts_of(self.user)):
            templates.append(part.text if part.text is not None else f"{{{part.column}}}")
        characters = fixed_text_after_columns(templates)
        if characters < WORTH_A_PREFIX:
            return []
        return [
            f"{self.shown_name()}: {characters:,} characters of fixed text come behind the first column of the prompt, "
            "so each row computes and pays for them again. Put the fixed text before the columns: endpoints and vLLM "
            "keep the beginning that prompts share"
        ]

    def is_drawn(self, body: Body) -> bool:
        return bool(body.get(CONFIG, body).get("temperature", 1) != 0)

    def whole_answers(self) -> Callable[[Body, Any], bool]:
        schema = answer_schema(self.output_schema)

        def is_whole(body: Body, answer: Answer) -> bool:
            try:
                list(self._values(answer, schema))
            except RowError:
                return False
            return all(choice.finish_reason not in CUT_OFF for choice in answer.choices)

        return is_whole

    def asking(self, requests: ConcurrentRequests[Any]) -> Predict:
        """Return the function that gets a batch's answers by these requests."""

        def predict(batch: Batch) -> Outcome:
            bodies = self.bodies(batch)
            row_ids = batch["row_id"].tolist()
            answers = requests.answers(row_ids, bodies)
            if self.repairs:
                answers = repaired(requests, row_ids, bodies, answers, self.misfit, self.price_of)
            return self.outcome(answers)

        return EnginePredict(predict, requests.counters)
