"""Batches by tokens: every sequence once, none above the budget unless it is alone, and little padding."""

from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.infer.huggingface.text_inputs import token_batches

lengths = st.lists(st.integers(0, 512), max_size=200)


@given(lengths, st.integers(1, 4096))
def test_every_sequence_comes_once_and_no_batch_is_above_its_budget(found: list[int], tokens: int) -> None:
    batches = [places.tolist() for places in token_batches(found, tokens, 16)]
    assert sorted(place for places in batches for place in places) == list(range(len(found)))
    for places in batches:
        assert len(places) == 1 or len(places) * max(found[place] for place in places) <= tokens


@given(lengths)
def test_without_a_budget_batches_have_as_many_sequences_as_asked_for(found: list[int]) -> None:
    batches = list(token_batches(found, None, 16))
    assert [len(places) for places in batches[:-1]] == [16] * (len(batches) - 1)
    assert sum(map(len, batches)) == len(found)


def test_texts_alike_in_length_share_a_batch() -> None:
    batches = [places.tolist() for places in token_batches([3, 500, 4, 490, 5], 1000, 16)]
    assert batches == [[1, 3], [4, 2, 0]]
