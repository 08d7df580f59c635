"""The common part of all chat models: settings, messages, and the columns of answers.

In: the columns that `system`, `user` and `messages` name (see messages.py). Out: `generated_text`, `prompt_tokens`,
`completion_tokens` (including the end token) and `finish_reason` (stop, or length if
`max_new_tokens` ended the answer); `reasoning` (see answer.py) and `structured_output` (see
structured_output.py) if they are set. Several texts of a row are lists. See docs/how-to/chat.md.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.config.settings import AdjustableFlag, AdjustableText, Settings
from overnight.tasks.errors import InvalidValues, RowError
from overnight.tasks.infer.chat.answer import Answer, Choice, column_of, texts_of
from overnight.tasks.infer.chat.answer_form import AnswerForm
from overnight.tasks.infer.chat.kept_text import ALL, KeepRule, Kept, keep_rule
from overnight.tasks.infer.chat.label_scores import mean_logprob, of_first_tokens
from overnight.tasks.infer.chat.messages import (
    MEDIA,
    SYSTEM,
    Content,
    Example,
    Message,
    Part,
    contents,
    conversation,
    has_system,
    media_columns,
    parts_of,
    text_columns,
)
from overnight.tasks.infer.chat.prompts import as_objects, as_texts
from overnight.tasks.infer.chat.row_settings import ByRow
from overnight.tasks.infer.predictor import Batch, Predictor
from overnight.tasks.rows.result import Outcome

if TYPE_CHECKING:
    from overnight.tasks.infer.chat.structured_output import AnswerSchema

Schema = dict[str, Any]

ANSWER_COLUMNS = {
    "generated_text": pa.string(),
    "prompt_tokens": pa.int64(),
    "completion_tokens": pa.int64(),
    "finish_reason": pa.string(),
}
Temperature = Annotated[
    float, Field(ge=0, description="0 takes the likeliest token; above 0, tokens are drawn at random.")
]
Seed = Annotated[int, Field(description="The seed of the random numbers, if temperature is above 0.")]
NumberOfTexts = Annotated[
    PositiveInt, Field(description="The texts that each row gets; above 1 generated_text is a list.")
]
TopK = Annotated[PositiveInt | None, Field(description="Draws only from this number of likeliest tokens.")]
ChatTemplateKwargs = Annotated[
    dict[str, Any],
    Field(description="Further arguments of the model's chat template, for example enable_thinking."),
]
User = Annotated[AdjustableText, Field(min_length=1)] | Annotated[list[Part], Field(min_length=1)]
USER = "The user's message: a text with {column} for values, or a list of parts (text, image, audio)."
ADVICE = "For images, kind: image_captioning, openai and vllm take them; for sounds, openai and vllm"
# the other columns have a value for each text
OF_ALL_TEXTS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "agreement", "label_scores")


class ReasoningSettings(Settings):
    """How much a model reasons before its answer, and whether the reasoning is published."""

    effort: Annotated[
        AdjustableText | None,
        Field(min_length=1, description="The server's word for it, such as low, medium or high."),
    ] = None
    budget_tokens: Annotated[PositiveInt | None, Field(description="The most tokens of reasoning.")] = None
    keep: Annotated[AdjustableFlag, Field(description="Puts the reasoning into the column reasoning.")] = True


Reasoning = Annotated[
    AdjustableFlag,
    Field(description="Puts a model's reasoning (<think>) into the column reasoning, apart from the answer."),
]


class ChatSettings(Predictor):
    """The settings that all chat models share."""

    messages: Annotated[
        AdjustableText | None,
        Field(
            min_length=1,
            description="A column with the conversation of each row, in place of user: a list of structs with role and "
            "content, or the same as JSON.",
        ),
    ] = None
    user: Annotated[User | None, Field(validate_default=True, description=USER)] = None
    system: Annotated[
        Content | None,
        Field(
            description="The system's message, with {column} for values. A conversation with a system's message of its "
            "own keeps that one."
        ),
    ] = None
    examples: Annotated[
        list[Example],
        Field(description="Questions with their answers, which the model sees before the messages of each row."),
    ] = []
    max_new_tokens: Annotated[PositiveInt, Field(description="The longest answer, in tokens.")] = 256
    temperature: Temperature = 0
    top_p: Annotated[
        float,
        Field(gt=0, le=1, description="Draws only from the likeliest tokens that together have this probability."),
    ] = 1
    seed: Seed = 0
    by_row: Annotated[
        ByRow,
        Field(
            description="Settings that each row has in a column; a row without a value has the job's.",
            examples=[{"temperature": "t", "max_new_tokens": "limit"}],
        ),
    ] = ByRow()
    num_return_sequences: NumberOfTexts = 1
    output_schema: Annotated[
        Schema | None,
        Field(description="A JSON schema for the answer, which is parsed into structured_output."),
    ] = None
    reasoning: Any = False  # a flag, or ReasoningSettings for endpoints
    answer: Annotated[
        AnswerForm | None, Field(description="The form of an answer that is not JSON; other answers fail their row.")
    ] = None
    keep: Annotated[
        AdjustableText,
        Field(
            description="Of several texts: all, majority, majority(FIELD) or best(SQL), by fields of structured_output."
        ),
    ] = ALL
    logprobs: Annotated[
        AdjustableFlag, Field(description="Adds mean_logprob, the mean log probability of the answer's tokens.")
    ] = False
    label_scores: Annotated[
        AdjustableFlag, Field(description="Adds label_scores, the probability of each of answer.choices.")
    ] = False

    takes: ClassVar[tuple[str, ...]] = ()  # the media that a message may have, of `MEDIA`

    @field_validator("user", "system")
    @classmethod
    def _names_columns(cls, content: Content | None, info: Any) -> Content | None:
        text_columns(content, info.field_name)
        return content

    @field_validator("user", "system")
    @classmethod
    def _has_parts_of_its_kind(cls, content: Content | None) -> Content | None:
        for part in parts_of(content):
            if part.kind in MEDIA and part.kind not in cls.takes:
                taken = " and ".join(("text", *cls.takes))
                raise ValueError(
                    f"expected parts of {taken}, found {part.kind}: this kind of model takes no other. {ADVICE}"
                )
        return content

    @field_validator("user")
    @classmethod
    def _is_there_or_messages_are(cls, user: Content | None, info: Any) -> Content | None:
        messages = info.data.get("messages")
        if user is None and messages is None:
            raise ValueError("is missing; expected a text or a list of parts, or messages with a column in its place")
        if user is not None and messages is not None:
            raise ValueError("expected no user beside messages, which has the user's. Leave one of them out")
        return user

    @field_validator("output_schema")
    @classmethod
    def _is_a_schema(cls, schema: Schema | None) -> Schema | None:
        answer_schema(schema)
        return schema

    @model_validator(mode="after")
    def _several_texts_are_drawn(self) -> "ChatSettings":
        if self.num_return_sequences > 1 and not self.draws():
            raise ValueError("num_return_sequences: texts of temperature 0 do not differ. Set temperature above 0")
        return self

    @model_validator(mode="after")
    def _answers_have_one_form(self) -> "ChatSettings":
        if self.answer and self.output_schema is not None:
            raise ValueError("answer: output_schema is the form of an answer in JSON. Leave one of them out")
        if self.label_scores and not (self.answer and self.answer.choices and self.num_return_sequences == 1):
            raise ValueError("label_scores: expected answer: {choices: [...]} and one text for each row")
        if rule := self.keep_rule():
            if self.num_return_sequences == 1:
                raise ValueError("keep: expected several texts. Set num_return_sequences above 1, or leave keep out")
            schema = answer_schema(self.output_schema)
            rule.refuse_fields(schema.type if schema else None)
        return self

    def has_tools(self) -> bool:
        """Return True if an answer may be a call of a tool."""
        return False

    def keep_rule(self) -> KeepRule | None:
        """Return the rule that keeps one of a row's texts, or None if all are kept."""
        return keep_rule(self.keep)

    def libraries(self) -> tuple[str, ...]:
        own = self.answer.libraries() if self.answer else ()
        return (*super().libraries(), *own)

    def content_settings(self, *but: str) -> dict[str, Any]:
        settings = super().content_settings(*but)
        schema = answer_schema(self.output_schema)
        if schema is not None and schema.has_alternatives:
            settings["answer_types"] = "alternatives"  # these columns were JSON text before
        return settings

    def draws(self) -> bool:
        """Return True if the tokens of an answer are drawn at random."""
        return self.temperature > 0 or self.by_row.temperature is not None

    def inputs(self) -> list[str]:
        return list(dict.fromkeys([*self.prompt_columns(), *self.media_columns(), "row_id"]))

    def prompt_columns(self) -> list[str]:
        return [*text_columns(self.system, "system"), *text_columns(self.user_content(), "user")]

    def media_columns(self) -> list[str]:
        """Return the columns that are read as they are: images, sounds, conversations, and the settings of rows."""
        columns = [*media_columns(self.system), *media_columns(self.user_content()), *self.by_row.columns().values()]
        return [*columns, self.messages] if self.messages else columns

    def user_content(self) -> Content | None:
        """Return the user's message; None if each row has a conversation."""
        return None if self.messages else self.user

    def outputs_made(self) -> list[str]:
        return list(self._types(answer_schema(self.output_schema)))

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        if name == self.messages:
            return as_objects(column)
        if name in self.prompt_columns():
            return as_texts(column, name)
        if name in self.by_row.columns().values():
            return as_objects(column)
        return super().given(name, column)

    def conversations(self, batch: Batch) -> list[list[Message]]:
        """Return the messages of each row, see messages.py: system, examples, and the row's own."""
        rows = []
        systems: Sequence[Any] = [None] * len(batch["row_id"])
        if self.system is not None:
            systems = contents(self.system, batch, "system")
        for system, messages in zip(systems, self._own_messages(batch), strict=True):
            before: list[Message] = []
            if system is not None and not has_system(messages):
                before.append({"role": "system", "content": system})
            for example in self.examples:
                before += [
                    {"role": "user", "content": example.user},
                    {"role": "assistant", "content": example.assistant},
                ]
            at = sum(message["role"] in SYSTEM for message in messages[:1])
            rows.append([*messages[:at], *before, *messages[at:]])
        return rows

    def _own_messages(self, batch: Batch) -> list[list[Message]]:
        if self.messages:
            return [conversation(value, self.messages) for value in batch[self.messages]]
        content = self.user_content()
        assert content
        return [[{"role": "user", "content": part}] for part in contents(content, batch, "user")]

    def outcome(self, answers: Sequence[Answer | Exception]) -> Outcome:
        """Return the columns of `answers`, one per row; an exception is the row's own failure."""
        schema = answer_schema(self.output_schema)
        types = self._types(schema)
        rows: dict[str, list[Any]] = {name: [None] * len(answers) for name in types}
        errors: dict[int, Exception] = {}
        for row, answer in enumerate(answers):
            if isinstance(answer, Exception):
                errors[row] = answer
                continue
            try:
                for name, value in self._values(answer, schema):
                    rows[name][row] = value
            except RowError as error:
                errors[row] = error
        columns = {}
        for name, values in rows.items():
            if name in OF_ALL_TEXTS:
                columns[name] = pa.array(values, types[name])
            else:
                columns[name] = column_of(values, types[name], 1 if self.keep_rule() else self.num_return_sequences)
        return Outcome(columns, failed=errors)

    def _types(self, schema: "AnswerSchema | None") -> dict[str, pa.DataType]:
        types = dict(ANSWER_COLUMNS)
        if isinstance(self.reasoning, ReasoningSettings):
            types["reasoning_tokens"] = pa.int64()
        if self.keeps_reasoning():
            types["reasoning"] = pa.string()
        if schema is not None:
            types["structured_output"] = schema.type
        if self.keep_rule() and self.keep.startswith("majority"):
            types["agreement"] = pa.float64()
        if self.logprobs:
            types["mean_logprob"] = pa.float64()
        if self.has_tools():
            types["tool_calls"] = pa.string()
        if self.label_scores and self.answer and self.answer.choices:
            types["label_scores"] = pa.struct([(choice, pa.float64()) for choice in self.answer.choices])
        return types

    def _values(self, answer: Answer, schema: "AnswerSchema | None") -> Iterator[tuple[str, Any]]:
        """Yield the names and values of an answer's columns. Raise `RowError` if its row fails."""
        self._check(answer)
        if rule := self.keep_rule():
            kept = self._kept(rule, answer, schema)
            answer = answer.only(kept.number)
            if kept.agreement is not None:
                yield "agreement", kept.agreement
        yield "prompt_tokens", answer.prompt_tokens
        yield "completion_tokens", answer.completion_tokens
        yield "finish_reason", [choice.finish_reason for choice in answer.choices]
        if isinstance(self.reasoning, ReasoningSettings):
            yield "reasoning_tokens", answer.reasoning_tokens
        yield from self._texts(answer)
        if schema is not None:
            yield "structured_output", schema.values(answer)
        if self.answer:
            yield "generated_text", self._in_form(self.answer, answer)
        if self.logprobs:
            yield "mean_logprob", list(map(mean_logprob, answer.choices))
        if self.has_tools():
            yield "tool_calls", [choice.details.get("tool_calls") for choice in answer.choices]
        if self.label_scores and self.answer:
            details = answer.choices[0].details
            scores = details.get("label_scores") or of_first_tokens(self.answer.choices or (), details)
            yield "label_scores", scores

    def misfit(self, answer: Answer) -> RowError | None:
        """Return why the first text of an answer does not have the required form; None if it has, or was cut off."""
        if answer.problem or answer.text is None or answer.finish_reason == "length":
            return None
        schema = answer_schema(self.output_schema)
        try:
            self._value(answer.choices[0], schema)
        except RowError as error:
            return error
        return None

    def _value(self, choice: Choice, schema: "AnswerSchema | None") -> Any:
        """Return the value of a text in the required form. Raise `RowError` if the text does not have it."""
        if schema is not None:
            return schema.value_of(choice)
        text = choice.parts().answer
        if text is None:
            raise RowError("answer: expected a text, found reasoning that does not end.")
        return self.answer.value(text) if self.answer else text

    def _in_form(self, form: AnswerForm, answer: Answer) -> list[str | None]:
        """Return the texts in the form of the answer. Raise `RowError`, with the tokens, if one does not fit."""
        texts = []
        for choice in answer.choices:
            try:
                texts.append(self._value(choice, None))
            except RowError as error:
                at_limit = " It ends at max_new_tokens." if choice.finish_reason == "length" else ""
                raise RowError(f"{error}{at_limit}{answer.usage}") from None
        return texts

    def _kept(self, rule: KeepRule, answer: Answer, schema: "AnswerSchema | None") -> Kept:
        """Return which of the texts that fit is kept. Raise `RowError` if none fits."""
        values, error = {}, None
        for number, choice in enumerate(answer.choices):
            try:
                values[number] = self._value(choice, schema)
            except RowError as misfit:
                error = error or misfit
        if not values:
            raise RowError(f"{error} None of {len(answer.choices)} texts fits.{answer.usage}")
        return rule.choose(values, schema.type if schema else None, len(answer.choices))

    def _texts(self, answer: Answer) -> Iterator[tuple[str, Any]]:
        """Yield the columns of texts. With settings of reasoning, no text has it between tags."""
        columns = texts_of(answer.choices, bool(self.reasoning))
        for name, texts in columns.items():
            if name != "reasoning" or self.keeps_reasoning():
                yield name, texts

    def keeps_reasoning(self) -> bool:
        """Return True if the reasoning has a column of its own."""
        return self.reasoning.keep if isinstance(self.reasoning, ReasoningSettings) else self.reasoning

    def _check(self, answer: Answer) -> None:
        """Raise `RowError` for an answer with too few texts. With `keep`, one text is enough."""
        is_enough = self.keep_rule() and any(choice.text is not None for choice in answer.choices)
        if answer.problem and not is_enough:
            raise RowError(f"expected a text as answer, found {answer.problem}.{answer.usage}")
        count, number = len(answer.choices), self.num_return_sequences
        if count < number:
            raise InvalidValues(
                f"expected {number} texts, found {count}: the endpoint returns fewer than the request requires. "
                f"Set num_return_sequences: {count}, or use an endpoint that supports n.{answer.usage}"
            )
        if is_enough:
            return
        for choice in answer.choices:
            if choice.text is None and not self.keeps_reasoning() and "tool_calls" not in choice.details:
                raise RowError(
                    f"expected a text as answer, found none: finish_reason {choice.finish_reason}. The model returned "
                    "only its reasoning: raise max_new_tokens, or set reasoning: true to keep it." + answer.usage
                )


def answer_schema(schema: Schema | None) -> "AnswerSchema | None":
    """Return the parser of answers that fit `schema`. Only a job with a schema imports its library."""
    if schema is None:
        return None
    from overnight.tasks.infer.chat.structured_output import AnswerSchema

    return AnswerSchema(schema)
