"""Penalties count a row's own tokens: a padded row has the scores that it has alone."""

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from overnight.tasks.infer.huggingface.generation import unpadded_processors

PAD = 0  # also the end token
TOKENS = torch.tensor([[PAD, PAD, 3], [4, 5, 3]])
MASK = torch.tensor([[0, 0, 1], [1, 1, 1]])


def scored(config: Any, tokens: torch.Tensor, mask: torch.Tensor, num_beams: int = 1) -> torch.Tensor:
    scores = torch.ones(len(tokens), 6)
    for processor in unpadded_processors(config, mask, num_beams)[0]:
        scores = processor(tokens, scores)
    return scores


@pytest.mark.parametrize(
    ("setting", "seen"), [({"repetition_penalty": 2.0}, 0.5), ({"no_repeat_ngram_size": 1}, float("-inf"))]
)
def test_the_token_of_the_padding_is_not_seen(setting: dict[str, Any], seen: float) -> None:
    config = GenerationConfig(**setting)
    assert scored(config, TOKENS, MASK).tolist() == [[1, 1, 1, seen, 1, 1], [1, 1, 1, seen, seen, seen]]
    assert set(unpadded_processors(config, MASK)[1]) == set(setting), "transformers' own one is off"


def test_each_beam_of_a_row_has_the_padding_of_its_row() -> None:
    config = GenerationConfig(repetition_penalty=2.0)
    beams = scored(config, TOKENS.repeat_interleave(2, 0), MASK, num_beams=2)
    assert torch.equal(beams, scored(config, TOKENS, MASK).repeat_interleave(2, 0))


def test_without_padding_or_a_setting_transformers_does_its_own_work() -> None:
    assert unpadded_processors(GenerationConfig(repetition_penalty=2.0), MASK[1:]) == ([], {})
    assert unpadded_processors(GenerationConfig(), MASK) == ([], {})
