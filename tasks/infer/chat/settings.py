"""The common part of all chat models: settings, messages, and the columns of answers.

In: the columns that `system` and `user` name. Out: `generated_text`, `prompt_tokens`,
`completion_tokens` (including the end token) and `finish_reason` (stop, or length if
`max_new_tokens` ended the answer); `reasoning` (see answer.py) and `structured_output` (see
structured_output.py) if they are set. Several texts of a row are lists. See docs/how-to/chat.md.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.config.settings import AdjustableFlag, AdjustableText
from overnight.tasks.errors import InvalidValues, RowError
from overnight.tasks.infer.chat.answer import Answer, Choice, column_of, texts_of
from overnight.tasks.infer.chat.answer_form import AnswerForm
from overnight.tasks.infer.chat.kept_text import ALL, KeepRule, Kept, keep_rule
from overnight.tasks.infer.chat.label_scores import mean_logprob, of_first_tokens
from overnight.tasks.infer.chat.prompts import as_texts, filled, placeholders
from overnight.tasks.infer.predictor import Batch, Predictor
from overnight.tasks.rows.result import Outcome

if TYPE_CHECKING:
    from overnight.tasks.infer.chat.structured_output import AnswerSchema

Message = dict[str, Any]
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
Reasoning = Annotated[
    AdjustableFlag,
    Field(description="Puts a model's reasoning (<think>) into the column reasoning, apart from the answer."),
]
TopK = Annotated[PositiveInt | None, Field(description="Draws only from this number of likeliest tokens.")]
ChatTemplateKwargs = Annotated[
    dict[str, Any],
    Field(description="Further arguments of the model's chat template, for example enable_thinking."),
]
# the other columns have a value for each text
OF_ALL_TEXTS = ("prompt_tokens", "completion_tokens", "agreement", "label_scores")


class ChatSettings(Predictor):
    """The settings that all chat models share."""

    user: Annotated[AdjustableText, Field(min_length=1, description="The user's message, with {column} for values.")]
    system: Annotated[AdjustableText | None, Field(description="The system's message, with {column} for values.")] = (
        None
    )
    max_new_tokens: Annotated[PositiveInt, Field(description="The longest answer, in tokens.")] = 256
    temperature: Temperature = 0
    top_p: Annotated[
        float,
        Field(gt=0, le=1, description="Draws only from the likeliest tokens that together have this probability."),
    ] = 1
    seed: Seed = 0
    num_return_sequences: NumberOfTexts = 1
    output_schema: Annotated[
        Schema | None,
        Field(description="A JSON schema for the answer, which is parsed into structured_output."),
    ] = None
    reasoning: Reasoning = False
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

    @field_validator("user", "system")
    @classmethod
    def _names_columns(cls, template: str | None, info: Any) -> str | None:
        placeholders(template or "", info.field_name)
        return template

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
        return self.temperature > 0

    def inputs(self) -> list[str]:
        return list(dict.fromkeys([*self.prompt_columns(), "row_id"]))

    def prompt_columns(self) -> list[str]:
        return [*placeholders(self.system or "", "system"), *placeholders(self.user, "user")]

    def outputs_made(self) -> list[str]:
        return list(self._types(answer_schema(self.output_schema)))

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        if name in self.prompt_columns():
            return as_texts(column, name)
        return super().given(name, column)

    def roles(self) -> list[str]:
        """Return the roles of the messages of each row, in their order."""
        return ["user"] if self.system is None else ["system", "user"]

    def messages(self, batch: Batch) -> list[list[Message]]:
        """Return for each row its chat messages, as dicts with `role` and `content`."""
        columns = []
        for role in self.roles():
            texts = filled(getattr(self, role), batch, role)
            columns.append([self.message(role, text) for text in texts])
        return list(map(list, zip(*columns, strict=True)))

    def message(self, role: str, text: str) -> Message:
        """Return a message of this role; a kind of model may add other parts to its text."""
        return {"role": role, "content": text}

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
        if self.reasoning:
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
        yield from texts_of(answer.choices, self.reasoning).items()
        if schema is not None:
            yield "structured_output", schema.values(answer)
        if self.answer:
            yield "generated_text", self._in_form(self.answer, answer)
        if self.logprobs:
            yield "mean_logprob", [mean_logprob(choice.details) for choice in answer.choices]
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
        if not self.answer:
            return text
        if text is None:
            raise RowError("answer: expected a text in the form of answer, found reasoning that does not end.")
        return self.answer.value(text)

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

    def _check(self, answer: Answer) -> None:
        """Raise `RowError` for an answer with too few texts."""
        if answer.problem:
            raise RowError(f"expected a text as answer, found {answer.problem}.{answer.usage}")
        count, number = len(answer.choices), self.num_return_sequences
        if count < number:
            raise InvalidValues(
                f"expected {number} texts, found {count}: the endpoint returns fewer than the request requires. "
                f"Set num_return_sequences: {count}, or use an endpoint that supports n.{answer.usage}"
            )
        for choice in answer.choices:
            if choice.text is None and not self.reasoning and "tool_calls" not in choice.details:
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
