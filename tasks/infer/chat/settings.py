"""The common part of all chat models: settings, messages, and the columns of answers.

In: the columns that `system` and `user` name. Out: `generated_text`; `prompt_tokens`, `completion_tokens` (int64,
including the end token); `finish_reason` (string: stop if the model ended, length if `max_new_tokens` ended it). With
`output_schema` also `structured_output`, of the schema's type (see structured_output.py): a row whose answer does not
fit is quarantined with the reason.

This file does not know the source of the answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, field_validator

from overnight.tasks.errors import RowError
from overnight.tasks.infer.predictor import Batch, Predictor
from overnight.tasks.infer.prompt_templates import filled, placeholders
from overnight.tasks.infer.values_as_text import as_texts
from overnight.tasks.rows.result import Outcome

Message = dict[str, Any]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The answer for a row; counts are None if the source does not report them."""

    text: str
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None


class ChatSettings(Predictor):
    """The settings of a chat completion per row."""

    user: Annotated[str, Field(min_length=1, description="The user's message, with {column} for values.")]
    system: Annotated[str | None, Field(description="The system's message, with {column} for values.")] = None
    max_new_tokens: Annotated[PositiveInt, Field(description="The longest answer, in tokens.")] = 256
    temperature: Annotated[float, Field(ge=0, description="0 takes the likeliest token.")] = 0
    top_p: Annotated[
        float,
        Field(gt=0, le=1, description="Draws only from the likeliest tokens that together have this probability."),
    ] = 1
    seed: Annotated[int, Field(description="The seed of the random numbers, if temperature is above 0.")] = 0
    output_schema: Annotated[
        Schema | None,
        Field(description="A JSON schema for the answer, which is parsed into structured_output."),
    ] = None

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

    def inputs(self) -> list[str]:
        columns = [*placeholders(self.system or "", "system"), *placeholders(self.user, "user"), "row_id"]
        return list(dict.fromkeys(columns))

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        templates = [*placeholders(self.system or "", "system"), *placeholders(self.user, "user")]
        return as_texts(column) if name in templates else super().given(name, column)

    def messages(self, batch: Batch) -> list[list[Message]]:
        """Return each row's messages, the system's first. Raise RowError for a row that lacks a value."""
        asked: list[list[Message]] = [[{"role": "user", "content": text}] for text in filled(self.user, batch, "user")]
        if self.system is None:
            return asked
        told = [{"role": "system", "content": text} for text in filled(self.system, batch, "system")]
        return [[first, *rest] for first, rest in zip(told, asked, strict=True)]

    def outcome(self, answers: Sequence[Answer | Exception]) -> Outcome:
        """Return the columns of answers, one per row; an exception is the row's own failure."""
        failed = {row: answer for row, answer in enumerate(answers) if isinstance(answer, Exception)}
        given = [answer if isinstance(answer, Answer) else None for answer in answers]
        columns: dict[str, Any] = {
            "generated_text": pa.array([one and one.text for one in given], pa.string()),
            "prompt_tokens": pa.array([one and one.prompt_tokens for one in given], pa.int64()),
            "completion_tokens": pa.array([one and one.completion_tokens for one in given], pa.int64()),
            "finish_reason": pa.array([one and one.finish_reason for one in given], pa.string()),
        }
        if self.output_schema is not None:
            columns["structured_output"] = _structured(self.output_schema, given, failed)
        return Outcome(columns, failed=failed)


def _structured(schema: Schema, given: Sequence[Answer | None], failed: dict[int, Exception]) -> pa.Array:
    from overnight.tasks.infer.chat.structured_output import AnswerSchema

    expected = AnswerSchema(schema)
    values: list[Any] = [None] * len(given)
    for row, answer in enumerate(given):
        if answer is not None:
            try:
                values[row] = expected.value(answer.text)
            except RowError as error:
                cut = " It ends at max_new_tokens." if answer.finish_reason == "length" else ""
                failed[row] = RowError(f"{error}{cut}{_tokens(answer)}")
    return pa.array(values, expected.type)


def _tokens(answer: Answer) -> str:
    """Return a sentence with the token counts of a failed answer, which must be paid too but is in no column."""
    if answer.prompt_tokens is None or answer.completion_tokens is None:
        return ""
    return f" It took {answer.prompt_tokens} prompt tokens and {answer.completion_tokens} completion tokens."
