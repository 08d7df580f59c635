"""The conversion of texts to the tokens of an encoder: without padding, so that rows can be batched by length later."""

from collections.abc import Callable
from typing import Any

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.length_bucketing import Encoded

Tokenize = Callable[[list[str]], list[Encoded]]


def tokenize_function(
    tokenizer: Any, config: Any, max_length: int | None = None, lower_case: bool = False, prompt: str = ""
) -> Tokenize:
    """Return a function that takes texts and returns the tokens of each, cut at `max_length` tokens.

    The tokens of a text map the names of the model's inputs to lists. If `max_length` is None, the limit is the
    tokenizer's own or that in the model's `config`, whichever is less. With `lower_case`, texts are put in lower case.
    `prompt` is put before every text. The function raises `RowError` for a text without tokens.
    """
    known = (tokenizer.model_max_length, getattr(config, "max_position_embeddings", None))
    longest = max_length or min(length for length in known if length)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token  # masked, so any token is fine

    def tokenize(values: list[str]) -> list[Encoded]:
        values = [prompt + value for value in values]
        values = [value.lower() for value in values] if lower_case else values
        encoded = tokenizer(values, truncation=longest < 1e9, max_length=int(longest), return_attention_mask=True)
        rows: list[Encoded] = [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
        if not all(row["input_ids"] for row in rows):
            raise RowError("text: expected at least one token, found an empty text.")
        return rows

    return tokenize
