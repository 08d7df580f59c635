"""A row's tokens depend on this row alone: padding counts for nothing, and random numbers belong to the row."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from overnight.tasks.infer.huggingface.generation import GumbelNoise, Sampling, seed_of, unpadded_processors

PAD = 0  # also the end token
TOKENS = torch.tensor([[PAD, PAD, 3], [4, 5, 3]])
MASK = torch.tensor([[0, 0, 1], [1, 1, 1]])
SCORES = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5])
CPU = torch.device("cpu")
NAMES = [str(number) for number in range(4000)]


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


def drawn(names: list[str], temperature: float = 1.0, seed: int = 0, **cuts: Any) -> list[int]:
    """The token that each row draws by the same scores."""
    noise = GumbelNoise(Sampling(temperature, seed, **cuts), names, CPU)
    tokens = torch.zeros(len(names), 1, dtype=torch.long)
    return noise(tokens, SCORES.repeat(len(names), 1)).argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_tokens_come_as_often_as_the_model_thinks_them_likely(temperature: float) -> None:
    shares = np.bincount(drawn(NAMES, temperature), minlength=5) / len(NAMES)
    assert shares == pytest.approx((SCORES / temperature).softmax(-1).numpy(), abs=0.03)


@pytest.mark.parametrize(
    ("cuts", "likely"),
    [({"top_k": 1}, {0}), ({"top_k": 2}, {0, 4}), ({"top_p": 0.3}, {0}), ({"top_p": 0.7}, {0, 1, 4})],
)
def test_only_tokens_that_are_likely_enough_are_drawn(cuts: dict[str, Any], likely: set[int]) -> None:
    assert set(drawn(NAMES[:400], 2.0, **cuts)) == likely


def test_a_row_draws_the_same_in_any_batch_and_another_token_with_another_seed() -> None:
    together = drawn(NAMES[:50])
    assert drawn(NAMES[:50][::-1])[::-1] == together
    assert drawn(NAMES[20:30]) == together[20:30]
    assert drawn(NAMES[:50], seed=1) != together


def test_the_random_numbers_of_a_row_depend_on_its_id_its_prompt_and_the_number_of_the_text() -> None:
    def first_of(row_id: str, prompt: str, number: int) -> float:
        noise = Sampling(1.0, 0).noises({"row_id": np.array([row_id])}, [prompt], CPU, 3)[number]
        assert noise is not None
        return float(noise(torch.zeros(1, 1), torch.zeros(1, 1)))

    rows = [("a", "p", 0), ("b", "p", 0), ("a", "q", 0), ("a", "p", 1), ("a", "p", 2)]
    assert len({first_of(*row) for row in rows}) == len(rows)
    assert Sampling(0, 0).noises({}, ["p"], CPU, 2) == [None, None], "temperature 0 draws nothing"
    assert seed_of("a") == 0xCA978112CA1BBD, "a later version must draw the same"
