"""Text generation: what the suite of models does not hold, such as random texts."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.text_generation import TextGeneration
from tests.tasks.infer.words import WORDS

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["the cat", "two old dogs run past the red house and the sea and", "a", "on a mat the cat saw two", "sea"]
VOCABULARY = 30


def save_tokenizer(folder: Path, **special: str) -> None:
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[END]", *WORDS])}
    vocabulary |= {f"w{number}": number for number in range(len(vocabulary), VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random language model of 64 tokens of context, whose tokenizer has no pad token."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("gpt2")
    sizes = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.3, eos_token_id=1, bos_token_id=None)).save_pretrained(
        folder
    )
    save_tokenizer(folder, eos_token="[END]", unk_token="[UNK]")
    return folder


def generate(folder: Path, rows: slice = slice(None), **settings: Any) -> dict[str, Any]:
    predictor = TextGeneration(**{"model": str(folder), "text_column": "body", "max_new_tokens": 12} | settings)
    batch = {"body": np.array(TEXTS, object)[rows], "row_id": np.array(list("abcde"), object)[rows]}
    found: Any = predictor.load()({name: batch[name] for name in predictor.inputs()})
    assert list(found) == predictor.outputs_made()
    return found


def test_sampling_gives_a_row_the_same_texts_in_any_batch_and_one_text_is_the_first_of_several(model: Path) -> None:
    drawing = {"temperature": 1.0, "seed": 7}
    one = generate(model, **drawing)["generated_text"]
    assert one != generate(model)["generated_text"]
    several = generate(model, **drawing, num_return_sequences=3)["generated_text"]
    assert several.type == pa.list_(pa.string())
    assert [row[0] for row in several.to_pylist()] == one.to_pylist()
    assert [len(set(row)) for row in several.to_pylist()] == [3] * 5
    backwards = generate(model, slice(None, None, -1), **drawing, num_return_sequences=3)["generated_text"]
    assert backwards.to_pylist()[::-1] == several.to_pylist()


def test_a_tokenizer_that_cannot_pad_is_refused(model: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    with pytest.raises(JobError, match="expected a pad or an end token"):
        generate(tmp_path)


def test_one_text_keeps_the_fingerprint() -> None:
    one = TextGeneration(model="gpt2", text_column="body", num_return_sequences=1)
    assert one.content_settings() == {"kind": "text_generation", "model": "gpt2", "text_column": "body"}


def test_reasoning_that_the_prompt_begins_is_apart_from_the_text(model: Path) -> None:
    texts = generate(model, prompt="{body} <think>")["generated_text"]
    found = generate(model, prompt="{body} <think>", reasoning=True)
    assert found["generated_text"].to_pylist() == [None] * len(TEXTS)
    assert found["reasoning"].to_pylist() == texts.to_pylist()
