"""Texts as inputs of an encoder: tokens without padding, in batches of similar length, to keep padding small.

A window of texts is sorted, longest first, so that a batch that does not fit into the memory fails early. A batch takes
texts up to a budget of tokens, including padding, so that every batch is about the same work. Budgets of tokens come
from fairseq (https://arxiv.org/abs/1904.01038).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.infer.huggingface.saved_model import PretrainedPredictor

Tokens = Mapping[str, list[int]]  # of one text, by the names of the model's inputs

# Per batch. On CPUs the best of 512 to 8,192 for MiniLM and news texts, float32 and bfloat16; for devices, an estimate.
CPU_TOKENS, DEVICE_TOKENS = 2_048, 65_536
BATCHES_PER_WINDOW = 32


class TextPredictor(PretrainedPredictor):
    """A saved model that gets texts in batches of similar length."""

    text_column: Annotated[str, Field(description="The column that holds the texts.")]

    def inputs(self) -> list[str]:
        return [self.text_column]

    def rows_per_call(self) -> int:
        return BATCHES_PER_WINDOW * self.forward_batch_size()

    def token_budget(self) -> int | None:
        """Return how many tokens a batch may have, including padding, if `batch_size` is auto; otherwise None."""
        if self.batch_size != "auto":
            return None
        return DEVICE_TOKENS if self.accelerators() else CPU_TOKENS

    def describe_batch(self) -> str:
        budget, window = self.token_budget(), f"of {self.rows_per_call()} sorted by length"
        if budget is None:
            return f"{self.batch_size} texts, {window}"
        return f"texts that fill {budget:,} tokens, {window}"

    def in_batches(self, texts: Sequence[Tokens], run: Callable[..., np.ndarray]) -> np.ndarray:
        """Call `run` with lists of texts of similar length. Return all results, one row per text in their order."""
        lengths = [len(tokens["input_ids"]) for tokens in texts]
        batches = list(token_batches(lengths, self.token_budget(), self.forward_batch_size()))
        results = []
        for batch in batches:
            results.append(run([texts[row] for row in batch]))
        return np.concatenate(results)[np.argsort(np.concatenate(batches))]


def token_batches(lengths: Sequence[int], tokens: int | None, rows: int) -> Iterator[np.ndarray]:
    """Yield the positions of each batch's texts, longest first: `rows`, or as many as fill `tokens` with padding."""
    order = np.argsort([-length for length in lengths], kind="stable")
    start = 0
    while start < len(order):
        count = rows
        if tokens is not None:
            count = max(tokens // max(lengths[order[start]], 1), 1)
        yield order[start : start + count]
        start += count


def tokenize_function(
    tokenizer: Any, config: Any, max_length: int | None = None, lower_case: bool = False, prompt: str = ""
) -> Callable[[list[str]], list[Tokens]]:
    """Return a function that takes texts and returns the tokens of each, cut at `max_length` or the model's limit."""
    limits = (tokenizer.model_max_length, getattr(config, "max_position_embeddings", None))
    longest = max_length or min(limit for limit in limits if limit)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token  # masked, so any token is fine

    def tokenize(texts: list[str]) -> list[Tokens]:
        texts = [prompt + text for text in texts]
        if lower_case:
            texts = [text.lower() for text in texts]
        columns = tokenizer(texts, truncation=longest < 1e9, max_length=int(longest), return_attention_mask=True)
        rows: list[Tokens] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if not all(row["input_ids"] for row in rows):
            raise RowError("text: expected at least one token, found an empty text.")
        return rows

    return tokenize
