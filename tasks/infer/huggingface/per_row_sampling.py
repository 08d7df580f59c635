"""Random tokens that belong to a row: the same row draws the same text, in any batch.

It is the Gumbel-max trick: the likeliest token of `scores / temperature + noise`, with standard Gumbel noise, is a draw
from softmax(scores / temperature) (https://arxiv.org/abs/1411.0030). So greedy search on noisy scores samples, and the
noise can come from one generator per row. `top_k` and `top_p` first remove the unlikely tokens, as in transformers. A
CPU and a GPU draw differently.
"""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overnight.tasks.infer.predictor import Batch

if TYPE_CHECKING:
    import torch


class GumbelNoise:
    """A logits processor for one call of `generate`, by which greedy search draws each row's tokens at random.

    `names` has one name per row. A row's random numbers depend only on its name and `seed`.
    """

    def __init__(
        self,
        temperature: float,
        seed: int,
        names: Iterable[str],
        device: "torch.device",
        top_p: float = 1,
        top_k: int | None = None,
    ) -> None:
        import torch
        from transformers import TopKLogitsWarper, TopPLogitsWarper

        self.temperature = temperature
        self.cuts = [TopKLogitsWarper(top_k)] if top_k else []
        self.cuts += [TopPLogitsWarper(top_p)] if top_p < 1 else []
        self.generators = [torch.Generator(device).manual_seed(number_of(f"{seed} {name}")) for name in names]

    def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":
        """Return `scores` (N x V) as float32, divided by the temperature, cut to the likely tokens, plus noise."""
        import torch

        scores = scores.float() / self.temperature
        for cut in self.cuts:
            scores = cut(input_ids, scores)
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise.clamp_min(torch.finfo(noise.dtype).tiny).log()


def noise_of(
    batch: Batch,
    prompts: Iterable[str],
    device: "torch.device",
    temperature: float,
    seed: int,
    top_p: float = 1,
    top_k: int | None = None,
    number: int = 0,
) -> GumbelNoise | None:
    """Return the noise of a batch, which depends only on seed, row, prompt and `number` of the row's text."""
    if not temperature:
        return None
    prefix = f"text {number} of " if number else ""
    names = [f"{prefix}{row_id} {prompt}" for row_id, prompt in zip(batch["row_id"], prompts, strict=True)]
    return GumbelNoise(temperature, seed, names, device, top_p, top_k)


def number_of(name: str) -> int:
    """Return a seed of 56 bits for a random generator, which depends only on `name`."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
