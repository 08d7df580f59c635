"""The common part of all chat models: settings, messages, and the columns of answers.

In: the columns that `system` and `user` name. Out, the last two only with the setting in brackets:

    generated_text       string
    prompt_tokens        int64
    completion_tokens    int64, including the end token
    finish_reason        string: stop if the model ended, length if `max_new_tokens` ended it
    structured_output    (output_schema) the answer in the schema's type (see structured_output.py). A row whose answer
                         does not fit is quarantined with the reason
    reasoning            (reasoning) string, null without any: what the model wrote before its answer (see
                         reasoning.py), or what its server returns apart from it. If the reasoning was cut off,
                         `generated_text` is null, and `finish_reason` is length

With `num_return_sequences` above 1, the columns are lists with a value per text. Only the numbers of tokens are not:
`completion_tokens` counts the tokens of all texts.

This file does not know the source of the answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.config.settings import AdjustableFlag, AdjustableText
from overnight.tasks.errors import InvalidValues, RowError
from overnight.tasks.infer.predictor import Batch, Predictor
from overnight.tasks.infer.prompt_templates import filled, placeholders
from overnight.tasks.infer.reasoning import Thought, split_reasoning
from overnight.tasks.infer.values_as_text import as_texts
from overnight.tasks.rows.result import Outcome

if TYPE_CHECKING:
    from overnight.tasks.infer.chat.structured_output import AnswerSchema

Message = dict[str, Any]
Schema = dict[str, Any]

ANSWER_COLUMNS = ("generated_text", "prompt_tokens", "completion_tokens", "finish_reason")


@dataclass(frozen=True)
class Answer:
    """The answer of a model or an endpoint for a row: its first text, further texts, and the numbers of tokens.

    `text` is None if there is only reasoning. `prompt_tokens` and `completion_tokens` count all texts, and are None if
    they are not reported. `finish_reason` is the reason why the text ends, such as `stop` or `length`; None if it is
    not reported. `reasoning` is what an endpoint returns apart from the text, or None. `is_begun` is True if the text
    begins inside the reasoning, because the prompt ends with `<think>`. `others` has one sequence per further text: the
    text, its finish reason, and its reasoning if that is apart. `problem` describes what an endpoint returned in the
    place of a text; then the row fails, and the answer is kept, because it was paid for.
    """

    text: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    reasoning: str | None = None
    is_begun: bool = False
    others: Sequence[Sequence[Any]] = ()
    problem: str | None = None

    @property
    def choices(self) -> "list[Choice]":
        """Return all texts of the answer, the first text first."""
        first = Choice(self.text, self.finish_reason, self.reasoning, self.is_begun)
        others = [Choice(text, end, apart[0] if apart else None, self.is_begun) for text, end, *apart in self.others]
        return [first, *others]


@dataclass(frozen=True)
class Choice:
    """One text of an answer.

    `text` is None if there is only reasoning. `finish_reason` is the reason why the text ends, such as `stop` or
    `length`; None if it is not reported. `reasoning` is what an endpoint returns apart from the text, or None.
    `is_begun` is True if the text begins inside the reasoning, because the prompt ends with `<think>`.
    """

    text: str | None
    finish_reason: str | None
    reasoning: str | None = None
    is_begun: bool = False

    def parts(self) -> Thought:
        """Return the text as its two parts, reasoning and answer. The answer is None if the reasoning was cut off."""
        was_cut = self.reasoning is not None and self.finish_reason == "length"
        if self.text is None or (was_cut and not self.text.strip()):
            return Thought(self.reasoning, None)
        found = split_reasoning(self.text, self.is_begun)
        return replace(found, reasoning=self.reasoning) if self.reasoning is not None else found


class ChatSettings(Predictor):
    """The settings that all chat models share."""

    user: Annotated[AdjustableText, Field(min_length=1, description="The user's message, with {column} for values.")]
    system: Annotated[AdjustableText | None, Field(description="The system's message, with {column} for values.")] = (
        None
    )
    max_new_tokens: Annotated[PositiveInt, Field(description="The longest answer, in tokens.")] = 256
    temperature: Annotated[
        float, Field(ge=0, description="0 takes the likeliest token; above 0, tokens are drawn at random.")
    ] = 0
    top_p: Annotated[
        float,
        Field(gt=0, le=1, description="Draws only from the likeliest tokens that together have this probability."),
    ] = 1
    seed: Annotated[int, Field(description="The seed of the random numbers, if temperature is above 0.")] = 0
    num_return_sequences: Annotated[
        PositiveInt, Field(description="The texts that each row gets; above 1 generated_text is a list.")
    ] = 1
    output_schema: Annotated[
        Schema | None,
        Field(description="A JSON schema for the answer, which is parsed into structured_output."),
    ] = None

    reasoning: Annotated[
        AdjustableFlag,
        Field(description="Puts a model's reasoning (<think>) into the column reasoning, apart from the answer."),
    ] = False

    @field_validator("user", "system")
    @classmethod
    def _names_columns(cls, template: str | None, info: Any) -> str | None:
        if template is not None:
            placeholders(template, info.field_name)
        return template

    @field_validator("output_schema")
    @classmethod
    def _is_a_schema(cls, schema: Schema | None) -> Schema | None:
        if schema is not None:
            from overnight.tasks.infer.chat.structured_output import AnswerSchema

            AnswerSchema(schema)
        return schema

    @model_validator(mode="after")
    def _several_texts_are_drawn(self) -> "ChatSettings":
        if self.num_return_sequences > 1 and not self.draws():
            raise ValueError("num_return_sequences: texts of temperature 0 do not differ. Set temperature above 0")
        return self

    def content_settings(self, *but: str) -> dict[str, Any]:
        from overnight.tasks.infer.chat.structured_output import AnswerSchema

        settings = super().content_settings(*but)
        if self.output_schema is not None and AnswerSchema(self.output_schema).has_alternatives:
            settings["answer_types"] = "alternatives"  # these columns were JSON text before
        return settings

    def draws(self) -> bool:
        """Return True if the tokens of an answer are drawn at random, and False if the likeliest tokens are taken."""
        return self.temperature > 0

    def inputs(self) -> list[str]:
        return list(dict.fromkeys([*self.prompt_columns(), "row_id"]))

    def prompt_columns(self) -> list[str]:
        return [*placeholders(self.system or "", "system"), *placeholders(self.user, "user")]

    def outputs_made(self) -> list[str]:
        more = {"reasoning": self.reasoning, "structured_output": self.output_schema is not None}
        return [*ANSWER_COLUMNS, *(name for name, is_made in more.items() if is_made)]

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        return as_texts(column, name) if name in self.prompt_columns() else super().given(name, column)

    def messages(self, batch: Batch) -> list[list[Message]]:
        """Return for each row its chat messages, as dicts with `role` and `content`.

        The system's message is the first, if the setting `system` is not None. Raise `RowError` for a row without a
        value in a column that `system` or `user` names.
        """
        asked: list[list[Message]] = [[{"role": "user", "content": text}] for text in filled(self.user, batch, "user")]
        if self.system is None:
            return asked
        told = [{"role": "system", "content": text} for text in filled(self.system, batch, "system")]
        return [[first, *rest] for first, rest in zip(told, asked, strict=True)]

    def outcome(self, answers: Sequence[Answer | Exception]) -> Outcome:
        """Return the columns of `answers`, which has one element per row, with the rows that failed.

        An exception is the row's own failure. A row also fails if an answer does not fit `output_schema`. Without the
        setting `reasoning`, it fails too if an answer has only reasoning.
        """
        failed = {row: answer for row, answer in enumerate(answers) if isinstance(answer, Exception)}
        given = [answer if isinstance(answer, Answer) else None for answer in answers]
        for row, answer in enumerate(given):
            if answer and (problem := self._problem(answer)):
                failed[row], given[row] = problem, None
        choices = [one.choices if one else None for one in given]
        if not self.reasoning:
            failed |= {
                row: _without_text(one, choice)
                for row, one in enumerate(given)
                if one
                for choice in one.choices
                if choice.text is None
            }
        thoughts = [[choice.parts() for choice in some] if some else None for some in choices]
        texts: list[list[str | None] | None]
        if self.reasoning:
            texts = [[thought.answer for thought in some] if some else None for some in thoughts]
        else:
            texts = [[choice.text for choice in some] if some else None for some in choices]
        reasons = [[choice.finish_reason for choice in some] if some else None for some in choices]
        columns: dict[str, Any] = {
            "generated_text": self._column(texts, pa.string()),
            "prompt_tokens": pa.array([one and one.prompt_tokens for one in given], pa.int64()),
            "completion_tokens": pa.array([one and one.completion_tokens for one in given], pa.int64()),
            "finish_reason": self._column(reasons, pa.string()),
        }
        if self.reasoning:
            reasoning = [[thought.reasoning for thought in some] if some else None for some in thoughts]
            columns["reasoning"] = self._column(reasoning, pa.string())
        if self.output_schema is not None:
            columns["structured_output"] = self._column(*_structured(self.output_schema, given, failed))
        return Outcome(columns, failed=failed)

    def _problem(self, answer: Answer) -> RowError | None:
        """Return why an answer has too few texts, or None."""
        if answer.problem:
            return RowError(f"expected a text as answer, found {answer.problem}.{_tokens(answer)}")
        count, expected = len(answer.choices), self.num_return_sequences
        if count < expected:
            return InvalidValues(
                f"expected {expected} texts, found {count}: the endpoint returns fewer than the request requires. "
                f"Set num_return_sequences: {count}, or use an endpoint that supports n.{_tokens(answer)}"
            )
        return None

    def _column(self, rows: Sequence[list[Any] | None], kind: pa.DataType) -> pa.Array:
        """Return a column of type `kind` from the texts of each row: lists, or the only text of each row."""
        if self.num_return_sequences > 1:
            return pa.array(rows, pa.list_(kind))
        return pa.array([texts[0] if texts else None for texts in rows], kind)


def _structured(
    schema: Schema, given: Sequence[Answer | None], failed: dict[int, Exception]
) -> tuple[list[list[Any] | None], pa.DataType]:
    """Return for each row a list with the value of each text, and the type of the values.

    If a text does not fit the schema, its row has None, and is added to `failed`.
    """
    from overnight.tasks.infer.chat.structured_output import AnswerSchema

    expected = AnswerSchema(schema)
    values: list[list[Any] | None] = [None] * len(given)
    for row, answer in enumerate(given):
        if answer is not None and row not in failed:
            found = []
            for choice in answer.choices:
                try:
                    found.append(_value(expected, choice))
                except RowError as error:
                    cut = " It ends at max_new_tokens." if choice.finish_reason == "length" else ""
                    place = f" It is text {len(found) + 1} of {len(answer.choices)}." if answer.others else ""
                    failed[row] = RowError(f"{error}{cut}{place}{_tokens(answer)}")
                    break
            else:
                values[row] = found
    return values, expected.type


def _value(expected: "AnswerSchema", choice: Choice) -> Any:
    """Return the value of a text, or of the answer after its reasoning. Raise `RowError` if it does not fit."""
    is_json = choice.text is not None and choice.text.lstrip().startswith(("{", "[", '"', "```"))
    text = choice.text if is_json else choice.parts().answer
    if text is None:
        raise RowError("answer: expected JSON that fits output_schema, found reasoning that does not end.")
    return expected.value(text)


def _without_text(answer: Answer, choice: Choice) -> RowError:
    return RowError(
        f"expected a text as answer, found none: finish_reason {choice.finish_reason}. The model returned only its "
        f"reasoning: raise max_new_tokens, or set reasoning: true to keep it.{_tokens(answer)}"
    )


def _tokens(answer: Answer) -> str:
    """Return a sentence with the token counts of a failed answer, which must be paid too but is in no column."""
    if answer.prompt_tokens is None or answer.completion_tokens is None:
        return ""
    return f" It took {answer.prompt_tokens} prompt tokens and {answer.completion_tokens} completion tokens."
