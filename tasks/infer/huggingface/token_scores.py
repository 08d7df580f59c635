"""Logits processors that read the log probabilities of a model's tokens, before a grammar and random numbers apply."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class LogProbabilities:
    """Keeps the log probability of each token that one call of `generate` chooses."""

    def __init__(self) -> None:
        self._scores: torch.Tensor | None = None
        self._steps: list[torch.Tensor] = []

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        self._add(input_ids[:, -1:])
        self._scores = scores.float().log_softmax(-1)
        return scores

    def means(self, sequences: "torch.Tensor", counts: Sequence[int]) -> list[float]:
        """Return each row's mean over its first tokens, as many as `counts`, from the result of `generate`."""
        import torch

        self._add(sequences[:, -1:])
        rows = torch.cat(self._steps, 1).tolist()
        return [sum(row[:count]) / count for row, count in zip(rows, counts, strict=True)]

    def _add(self, tokens: "torch.Tensor") -> None:
        if self._scores is not None:
            self._steps.append(self._scores.gather(1, tokens))


class ForcedTokens:
    """Makes one call of `generate` write these tokens. `total` becomes the log probability of each row to do so."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._left = list(tokens)
        self.total: torch.Tensor | float = 0.0

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        import torch

        token = self._left.pop(0)
        self.total = self.total + scores.float().log_softmax(-1)[:, token]
        forced = torch.full_like(scores, -torch.inf)
        forced[:, token] = 0
        return forced
