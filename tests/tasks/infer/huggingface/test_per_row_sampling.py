"""Random tokens of a row: drawn from the model's distribution, and the same in any batch."""

from typing import Any

import numpy as np
import pytest
import torch

from overnight.tasks.infer.huggingface.per_row_sampling import GumbelNoise, noise_of, number_of

SCORES = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5])
CPU = torch.device("cpu")
NAMES = [str(number) for number in range(4000)]


def drawn(names: list[str], temperature: float = 1.0, seed: int = 0, **cuts: Any) -> list[int]:
    """The token that each row draws by the same scores."""
    noise = GumbelNoise(temperature, seed, names, CPU, **cuts)
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
        noise = noise_of({"row_id": np.array([row_id])}, [prompt], CPU, 1.0, 0, number=number)
        assert noise is not None
        return float(noise(torch.zeros(1, 1), torch.zeros(1, 1)))

    rows = [("a", "p", 0), ("b", "p", 0), ("a", "q", 0), ("a", "p", 1), ("a", "p", 2)]
    assert len({first_of(*row) for row in rows}) == len(rows)
    assert noise_of({"row_id": np.array(["a"])}, ["p"], CPU, 0, 0) is None, "temperature 0 draws nothing"
    assert number_of("a") == 0xCA978112CA1BBD, "a later version must draw the same"
