"""A limit on the tokens that a model may generate: only those with which a text can still fit a grammar.

llguidance computes the tokens of each row by the row's own text. So no row depends on the others of its batch.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight.tasks.config.extras import require_extra
from overnight.tasks.infer.chat.grammar import LIBRARY, Grammar
from overnight.tasks.infer.huggingface.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch

DECODERS = ("ByteLevel", "ByteFallback")


class Constraint:
    """A grammar over the tokens of a tokenizer, made once by each worker. `ends` are the model's end tokens."""

    def __init__(
        self, checkpoint: Checkpoint, tokenizer: Any, grammar: Grammar, vocabulary: int, ends: Collection[int]
    ) -> None:
        """Raise `JobError` if the tokenizer, the end tokens or the grammar cannot be used."""
        library = require_extra(LIBRARY, f"inference: {grammar.setting}", "infer")
        from llguidance.hf import from_tokenizer

        if not ends:
            raise checkpoint.unusable(
                f"{grammar.setting}: expected an end token in generation_config.json, found none. Set eos_token_id"
            )
        try:
            tokens = from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=sorted(ends))
        except Exception as error:
            raise checkpoint.unusable(
                f"{grammar.setting}: expected a fast tokenizer with the decoder {' or '.join(DECODERS)}, found one "
                f"that llguidance cannot read: {error}. Use another model, or leave {grammar.setting} out"
            ) from error
        self._start, self._ends = library.LLMatcher(tokens, grammar.source), ends
        if self._start.is_error():
            raise checkpoint.unusable(f"{grammar.setting}: {' '.join(self._start.get_error().split())}")

    def rows(self, count: int) -> "ConstrainedRows":
        """Return the logits processor of one call of `generate` for this number of rows."""
        return ConstrainedRows([self._start.deep_copy() for _ in range(count)], self._ends)


class ConstrainedRows:
    """A logits processor that excludes tokens by the grammar. `problems`: row -> why its text does not count."""

    def __init__(self, matchers: Sequence[Any], ends: Collection[int]) -> None:
        self._matchers, self._ends, self._is_begun = matchers, ends, False
        self.problems: dict[int, str] = {}

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        import torch

        if self._is_begun:
            self._consume(input_ids[:, -1].tolist())
        self._is_begun = True
        mask = torch.from_numpy(self._allowed(scores.shape[1])).to(scores.device)
        return scores.masked_fill(~mask, -torch.inf)

    def _consume(self, tokens: Sequence[int]) -> None:
        """Give each row its last token. A text that is complete gets padding, which does not count."""
        for row, (matcher, token) in enumerate(zip(self._matchers, tokens, strict=True)):
            if row in self.problems or matcher.is_stopped():
                continue
            matcher.consume_token(token)
            if matcher.is_error():
                self.problems[row] = (
                    "no token that the grammar allows: generation_config.json excludes it, or the logits are not "
                    f"finite ({' '.join(matcher.get_error().split())[:200]})"
                )

    def _allowed(self, vocabulary: int) -> np.ndarray:
        """Return N x V bools: the tokens with which each row may go on, or its end."""
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        bits = allocate_token_bitmask(len(self._matchers), vocabulary)
        for row, matcher in enumerate(self._matchers):
            if row not in self.problems:
                fill_next_token_bitmask(matcher, bits, row)
        mask = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :vocabulary].astype(bool)
        for row in self.problems:
            mask[row] = False
            mask[row, list(self._ends)] = True
        return mask
