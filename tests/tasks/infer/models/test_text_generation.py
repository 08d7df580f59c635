"""Text generation: what the suite of models does not hold, such as random texts."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.models.text_generation import TextGeneration
from tests.tasks.infer.words import WORDS

TEXTS = ["the cat", "two old dogs run past the red house and the sea and", "a", "on a mat the cat saw two", "sea"]
VOCABULARY = 30


def save_tokenizer(folder, **special):
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[END]", *WORDS])}
    vocabulary |= {f"w{number}": number for number in range(len(vocabulary), VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small random language model of 64 tokens of context, whose tokenizer has no pad token."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("gpt2")
    sizes = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    config = GPT2Config(**sizes, initializer_range=0.3, eos_token_id=1, bos_token_id=None)
    GPT2LMHeadModel(config).save_pretrained(folder)
    save_tokenizer(folder, eos_token="[END]", unk_token="[UNK]")
    return folder


def generate(folder, values=TEXTS, names=None, **settings):
    predictor = TextGeneration(**{"model": str(folder), "text_column": "body", "max_new_tokens": 12} | settings)
    batch = {
        "body": np.array(values, object),
        "row_id": np.array(names or [f"r{i}" for i in range(len(values))], object),
    }
    return predictor.load()({name: batch[name] for name in predictor.inputs()})["generated_text"]


@pytest.mark.parametrize(
    "prompt", ["no column", "{}", "{body.__class__} {body}", "{body!r}", "{body:>9}", "{other}", "{"]
)
def test_a_prompt_that_cannot_be_filled_is_refused_at_once(prompt):
    with pytest.raises(ValidationError, match="prompt"):
        TextGeneration(model="gpt2", text_column="body", prompt=prompt)


def test_sampling_gives_a_row_the_same_text_in_any_batch(model):
    names = ["a", "b", "c", "d", "e"]
    found = generate(model, names=names, temperature=1.0, seed=7)
    assert generate(model, TEXTS[::-1], names[::-1], temperature=1.0, seed=7)[::-1] == found
    assert generate(model, TEXTS[2:3], names[2:3], temperature=1.0, seed=7) == found[2:3]
    assert found != generate(model)


def test_sampling_differs_by_seed_and_by_row(model):
    same_text = ["the cat"] * 4
    found = generate(model, same_text, temperature=1.0)
    assert len(set(found)) > 1
    assert generate(model, same_text, temperature=1.0, seed=1) != found


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_sampling_draws_from_the_models_distribution(model, temperature):
    count = 3000
    found = generate(model, ["the cat"] * count, temperature=temperature, max_new_tokens=1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model).eval()
    with torch.no_grad():
        logits = network(**tokenizer("the cat", return_tensors="pt", return_token_type_ids=False)).logits[0, -1]
    expected = (logits / temperature).softmax(-1)
    drawn = torch.tensor([tokenizer.convert_tokens_to_ids(word) if word else 1 for word in found])
    special = expected[:2].sum()  # end and unknown both come out as no word
    frequencies = torch.bincount(drawn, minlength=VOCABULARY)[:VOCABULARY] / count
    assert abs(frequencies[:2].sum() - special) < 0.05
    assert (frequencies[2:] - expected[2:]).abs().max() < 0.05


def test_a_row_without_a_value_says_so(model):
    with pytest.raises(RowError, match="body: expected a text, found no value"):
        generate(model, ["the cat", None])
    predictor = TextGeneration(model=str(model), text_column="body", prompt="{place} {body}", max_new_tokens=9)
    with pytest.raises(RowError, match="place: expected a value for the prompt, found none"):
        predictor.load()({"body": np.array(["cat"], object), "place": np.array([None], object)})


def test_more_new_tokens_than_the_context_holds_are_refused(model):
    with pytest.raises(JobError, match="max_new_tokens: 64 fills its whole context of 64 tokens"):
        generate(model, max_new_tokens=64)


def test_a_tokenizer_that_cannot_pad_is_refused(model, tmp_path):
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    with pytest.raises(JobError, match="expected a pad or an end token"):
        generate(tmp_path)


def test_several_texts_of_a_row_are_drawn_one_by_one_and_the_first_is_the_only_one_of_others(model):
    names = ["a", "b", "c", "d", "e"]
    found = generate(model, names=names, temperature=1.0, num_return_sequences=3)
    assert found.type == pa.list_(pa.string())
    rows = found.to_pylist()
    assert [row[0] for row in rows] == generate(model, names=names, temperature=1.0)
    assert generate(model, TEXTS[2:3], names[2:3], temperature=1.0, num_return_sequences=3).to_pylist() == rows[2:3]
    assert [len(set(row)) for row in rows] == [3] * 5


def test_several_texts_that_would_be_one_are_refused_and_one_text_keeps_the_fingerprint():
    with pytest.raises(ValidationError, match="expected temperature above 0, or num_beams of at least 3, found num_b"):
        TextGeneration(model="gpt2", text_column="body", num_beams=2, num_return_sequences=3)
    one = TextGeneration(model="gpt2", text_column="body", num_return_sequences=1)
    assert one.content_settings() == {"kind": "text_generation", "model": "gpt2", "text_column": "body"}


def test_reasoning_that_the_prompt_begins_is_apart_from_the_text(model):
    texts = generate(model, prompt="{body} <think>")
    settings = {"model": str(model), "text_column": "body", "max_new_tokens": 12, "prompt": "{body} <think>"}
    found = TextGeneration(**settings, reasoning=True).load()({"body": np.array(TEXTS, object)})
    assert found["generated_text"].to_pylist() == [None] * len(TEXTS)
    assert found["reasoning"].to_pylist() == texts
