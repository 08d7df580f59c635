"""Log probabilities are those of the model's own forward pass over prompt and answer."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.chat import Chat
from tests.tasks.infer.chat_models import byte_model, some_words

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = some_words(5)
CHOICES = ["good", "bad", "not good"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_model(tmp_path_factory.mktemp("bytes"))


def run(folder: Path, **settings: Any) -> Any:
    chat = Chat(model=str(folder), user="{text}", **settings)
    batch = {"text": np.array(TEXTS, object), "row_id": np.array([f"r{row}" for row in range(len(TEXTS))], object)}
    return chat.load()(batch).columns


def logs_of(folder: Path, prompt: str, answer: list[int]) -> list[float]:
    """The log probability of each token of the answer, in one forward pass of the row alone."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    start = tokenizer(f"{prompt}\n")["input_ids"]
    with torch.inference_mode():
        logs = model(torch.tensor([start + answer])).logits.log_softmax(-1)[0, len(start) - 1 : -1]
    return [logs[step, token].item() for step, token in enumerate(answer)]


def test_the_mean_is_over_the_answers_tokens_and_its_end(folder: Path) -> None:
    columns = run(folder, max_new_tokens=12, temperature=9.0, logprobs=True, answer={"regex": "[a-m]{2}|[n-z]{5}"})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    answers, means = columns["generated_text"].to_pylist(), columns["mean_logprob"].to_pylist()
    assert len({len(answer) for answer in answers}) > 1
    for text, answer, mean in zip(TEXTS, answers, means, strict=True):
        logs = logs_of(folder, text, [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id])
        assert mean == pytest.approx(sum(logs) / len(logs), rel=1e-4)


def test_the_scores_of_labels_are_the_probabilities_of_their_whole_texts(folder: Path) -> None:
    columns = run(folder, max_new_tokens=12, answer={"choices": CHOICES}, label_scores=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text, scores in zip(TEXTS, columns["label_scores"].to_pylist(), strict=True):
        weights = {}
        for choice in CHOICES:
            tokens = tokenizer(choice)["input_ids"] + [tokenizer.eos_token_id]
            weights[choice] = math.exp(sum(logs_of(folder, text, tokens)))
        expected = {choice: weight / sum(weights.values()) for choice, weight in weights.items()}
        assert scores == pytest.approx(expected, rel=1e-3)
    assert set(columns["generated_text"].to_pylist()) <= set(CHOICES)


def test_a_choice_that_is_longer_than_an_answer_may_be_is_refused(folder: Path) -> None:
    with pytest.raises(JobError, match="max_new_tokens: expected at least 9 for the choice 'not good', found 8"):
        run(folder, max_new_tokens=8, answer={"choices": CHOICES}, label_scores=True)
