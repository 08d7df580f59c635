"""Batches of sequences of similar length, to keep padding small.

A window of sequences is sorted, longest first, so that a batch that does not fit into the memory fails early. A batch
takes sequences up to a budget of tokens, including padding. So it has many short texts or few long ones, and every
batch is about the same work. Budgets of tokens come from fairseq (https://arxiv.org/abs/1904.01038).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

Encoded = Mapping[str, list[int]]  # of one text, by the names of the model's inputs

# Per batch. On CPUs the best of 512 to 8,192 for MiniLM and news texts, float32 and bfloat16; for devices, an estimate.
CPU_TOKENS, DEVICE_TOKENS = 2_048, 65_536
BATCHES_PER_WINDOW = 32


def token_batches(lengths: Sequence[int], tokens: int | None, rows: int) -> Iterator[np.ndarray]:
    """Yield for each batch the places of its sequences in `lengths` (int64). The longest sequences come first.

    `lengths` has the tokens of each sequence. Each place is in one batch. `tokens` limits the tokens of a batch, with
    its padding; a longer sequence is a batch of its own. If `tokens` is None, a batch has at most `rows` sequences.
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
    """Call `run` with batches of texts of similar length, and return all results, one row per text in their order.

    `encoded` has the tokens of each text. `run` takes a list of these, and returns an array with one row per text.
    `tokens` limits the tokens of a batch, with its padding. If it is None, a batch has at most `rows` texts.
    """
    lengths = [len(one["input_ids"]) for one in encoded]
    batches = list(token_batches(lengths, tokens, rows))
    made = [run([encoded[row] for row in places]) for places in batches]
    return np.concatenate(made)[np.argsort(np.concatenate(batches))]
