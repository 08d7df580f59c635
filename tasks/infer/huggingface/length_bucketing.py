"""Batches of sequences of similar length, to keep padding small.

A window of sequences is sorted, longest first, so that a batch that does not fit fails early. A batch takes sequences
up to a budget of tokens, including padding: many short texts or few long ones, and about the same work per batch.
Budgets of tokens come from fairseq (https://arxiv.org/abs/1904.01038).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

Encoded = Mapping[str, list[int]]  # of one text, by the names of the model's inputs

# Per batch. On CPUs the best of 512 to 8,192 for MiniLM and news texts, float32 and bfloat16; for devices, an estimate.
CPU_TOKENS, DEVICE_TOKENS = 2_048, 65_536
BATCHES_PER_WINDOW = 32


def token_batches(lengths: Sequence[int], tokens: int | None, rows: int) -> Iterator[np.ndarray]:
    """Yield the places (int64) of each batch's sequences, all of them once, longest first.

    `tokens` limits a batch with its padding; None: batches of `rows` sequences.
    """
    order = np.argsort([-length for length in lengths], kind="stable")
    start = 0
    while start < len(order):
        longest = max(lengths[order[start]], 1)
        count = rows if tokens is None else max(tokens // longest, 1)
        yield order[start : start + count]
        start += count


def batches_by_length(
    encoded: Sequence[Encoded], tokens: int | None, rows: int, run: Callable[..., np.ndarray]
) -> np.ndarray:
    """Return the results of `run` for texts, one row each and in their order; each call gets texts of similar length.

    `tokens` and `rows` as for `token_batches`.
    """
    lengths = [len(one["input_ids"]) for one in encoded]
    batches = list(token_batches(lengths, tokens, rows))
    made = [run([encoded[row] for row in places]) for places in batches]
    return np.concatenate(made)[np.argsort(np.concatenate(batches))]
