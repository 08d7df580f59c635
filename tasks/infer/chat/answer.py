"""The answer of a model for a row: its texts, and in each text the reasoning before the answer.

Qwen3 and DeepSeek-R1 write their reasoning between `<think>` and `</think>`. Some chat templates
write `<think>` at the end of the prompt. Then the text has only `</think>`, or neither tag if the
reasoning was cut off. Other tags, and further pairs of these tags, stay in the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

BEGIN, END = "<think>", "</think>"


@dataclass(frozen=True)
class Thought:
    """The parts of a text: `reasoning` is None without any, `answer` if the reasoning did not end."""

    reasoning: str | None
    answer: str | None


@dataclass(frozen=True)
class Choice:
    """One text of an answer, see `Answer`."""

    text: str | None
    finish_reason: str | None
    reasoning: str | None = None
    is_begun: bool = False
    problem: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)  # see `Answer.details`

    def parts(self) -> Thought:
        """Return the reasoning and the answer of this text."""
        was_cut = self.reasoning is not None and self.finish_reason == "length"
        if self.text is None or (was_cut and not self.text.strip()):
            return Thought(self.reasoning, None)
        thought = split_reasoning(self.text, self.is_begun)
        if self.reasoning is not None:
            thought = replace(thought, reasoning=self.reasoning)
        return thought


@dataclass(frozen=True)
class Answer:
    """The answer of a model or an endpoint for a row. The log of answers has its fields as JSON."""

    text: str | None  # None: only reasoning
    prompt_tokens: int | None
    completion_tokens: int | None  # of all texts
    finish_reason: str | None
    reasoning: str | None = None  # what an endpoint returns apart from the text
    is_begun: bool = False  # the prompt ends with <think>
    others: Sequence[Sequence[Any]] = ()  # further texts: text, finish reason, reasoning if that is apart
    problem: str | None = None  # what is in the place of a text: the row fails, and the answer was paid for
    reasoning_tokens: int | None = None  # of the completion tokens, if the endpoint counts them
    # of each text, if the settings require them: mean_logprob, tool_calls, and first_tokens or label_scores
    details: Sequence[Mapping[str, Any]] = ()
    model: str | None = None  # that answered, as the endpoint names it
    system_fingerprint: str | None = None  # of the endpoint's configuration
    cached_tokens: int | None = None  # of the prompt, which may have a lower price
    price: float = 1.0  # of its tokens, as a share of their usual price: a batch is cheaper

    @property
    def choices(self) -> list[Choice]:
        """Return all texts of the answer, the first text first."""
        choices = [Choice(self.text, self.finish_reason, self.reasoning, self.is_begun)]
        for text, finish_reason, *reasoning in self.others:
            choices.append(Choice(text, finish_reason, reasoning[0] if reasoning else None, self.is_begun))
        for number, details in enumerate(self.details):
            choices[number] = replace(choices[number], details=details)
        return choices

    def only(self, number: int) -> "Answer":
        """Return the answer with only its text of this number, and the tokens of all its texts."""
        choice = self.choices[number]
        return replace(
            self,
            text=choice.text,
            finish_reason=choice.finish_reason,
            reasoning=choice.reasoning,
            others=(),
            details=(choice.details,),
        )

    @property
    def usage(self) -> str:
        """Return a sentence with the tokens of a failed answer, which are paid and in no column."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return ""
        return f" It took {self.prompt_tokens} prompt tokens and {self.completion_tokens} completion tokens."


def split_reasoning(text: str, is_begun: bool = False) -> Thought:
    """Return both parts of `text`, which begins inside the reasoning if `is_begun`."""
    inside = text.lstrip()
    has_tag = inside.startswith(BEGIN)
    before, end, after = inside.removeprefix(BEGIN).partition(END)
    if not (has_tag or is_begun or end):
        return Thought(None, text)
    return Thought(before.strip() or None, after.lstrip() if end else None)


def begins_reasoning(prompt: str) -> bool:
    """Return True if the prompt ends with `<think>`."""
    return prompt.rstrip().endswith(BEGIN)


def texts_of(choices: Sequence[Choice], reasoning: bool) -> dict[str, list[str | None]]:
    """Return column -> a row's texts. With `reasoning`, it is in a column of its own."""
    if not reasoning:
        return {"generated_text": [choice.text for choice in choices]}
    thoughts = [choice.parts() for choice in choices]
    return {
        "generated_text": [thought.answer for thought in thoughts],
        "reasoning": [thought.reasoning for thought in thoughts],
    }


def column_of(rows: Sequence[Sequence[Any] | None], kind: pa.DataType, texts_per_row: int) -> pa.Array:
    """Return the rows' values as lists, or each row's only value; null for a row without values."""
    if texts_per_row > 1:
        return pa.array(rows, pa.list_(kind))
    return pa.array([values and values[0] for values in rows], kind)
