"""The reasoning that a model writes before its answer, between `<think>` and `</think>`, and the answer after it.

Qwen3 and DeepSeek-R1 write these tags. Some chat templates write `<think>` at the end of the prompt. Then the text has
only `</think>`, or neither tag if the reasoning was cut off. Other tags, and further pairs of these tags, stay in the
answer.
"""

from dataclasses import dataclass

BEGIN, END = "<think>", "</think>"


@dataclass(frozen=True)
class Thought:
    """The two parts of a model's text. `reasoning` is None if the text has none.

    `answer` is None if the reasoning did not end.
    """

    reasoning: str | None
    answer: str | None


def split_reasoning(text: str, is_begun: bool = False) -> Thought:
    """Return the reasoning in `text`, between `<think>` and `</think>`, and the answer after it.

    Without these tags, all of the text is the answer. Whitespace between both parts is left out. `is_begun` is True if
    the prompt ends with `<think>`, so that the text begins inside the reasoning.
    """
    inside = text.lstrip()
    has_tag = inside.startswith(BEGIN)
    before, end, after = inside.removeprefix(BEGIN).partition(END)
    if not (has_tag or is_begun or end):
        return Thought(None, text)
    return Thought(before.strip() or None, after.lstrip() if end else None)


def begins_reasoning(prompt: str) -> bool:
    """Return True if the prompt ends with `<think>`, the tag that begins the reasoning."""
    return prompt.rstrip().endswith(BEGIN)
