"""A random model whose tokens are bytes writes only what its grammar allows, whatever the other rows are."""

import datetime
import decimal
import enum
import json
import re
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import llguidance
import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, create_model
from transformers import (
    AutoTokenizer,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from overnight.tasks.errors import JobError
from overnight.tasks.infer.chat.grammar import of_choices
from overnight.tasks.infer.huggingface.constraint import ConstrainedRows
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from tests.tasks.infer.chat_models import TEMPLATE, byte_model, byte_tokenizer, chat_model, some_words
from tests.tasks.infer.chat_server import MOOD

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = some_words(200)


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Author(BaseModel):
    name: str = Field(max_length=6)
    born: int | None


class Review(BaseModel):
    mood: Mood
    stars: int = Field(ge=1, le=5)
    number: int
    is_long: bool
    tone: Literal["dry", "warm"] | None
    author: Author
    others: list[Author] = Field(max_length=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_model(tmp_path_factory.mktemp("bytes"))


def run(folder: Path, texts: list[str], first: int = 0, **settings: Any) -> Any:
    chat = Chat(model=str(folder), user="{text}", **settings)
    ids = [f"r{first + row}" for row in range(len(texts))]
    return chat.load()({"text": np.array(texts, object), "row_id": np.array(ids, object)})


def texts_of(outcome: Any) -> list[str]:
    return list(outcome.columns["generated_text"].to_pylist())


def test_all_random_rows_fit_a_schema_of_pydantic_except_those_that_the_limit_cuts(model: Path) -> None:
    schema = Review.model_json_schema()
    done = run(model, TEXTS, output_schema=schema, constrain=True, temperature=1.0, max_new_tokens=200)
    reasons = done.columns["finish_reason"].to_pylist()
    ends = {row for row, reason in enumerate(reasons) if reason == "stop"}
    failed = set(done.failed)
    assert len(ends) > 150, Counter(reasons)
    assert failed.isdisjoint(ends)
    assert all("It ends at max_new_tokens." in str(error) for error in done.failed.values())
    values = done.columns["structured_output"].to_pylist()
    for row in ends:
        text = texts_of(done)[row]
        Draft202012Validator(schema).validate(json.loads(text))
        assert Review.model_validate(values[row]) == Review.model_validate_json(text)
    for name in ("mood", "tone", "is_long"):
        assert len({values[row][name] for row in ends}) > 1, "the rows are drawn at random"


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    is_loud: bool


class Tree(BaseModel):
    value: bool
    next: list["Tree"] = Field(max_length=1)


@pytest.mark.parametrize(
    "annotation",
    [Author, Mood, datetime.date, uuid.UUID, decimal.Decimal, Literal[1, 2.5, None], Cat | Dog, Tree],
)
def test_each_random_answer_fits_the_schema_of_its_annotation(model: Path, annotation: Any) -> None:
    schema = create_model("Answer", x=(annotation | None, ...)).model_json_schema()
    done = run(model, TEXTS[:8], output_schema=schema, constrain=True, temperature=1.0, max_new_tokens=90)
    reasons = done.columns["finish_reason"].to_pylist()
    assert "stop" in reasons
    assert {reasons[row] for row in done.failed} <= {"length"}


def test_a_row_does_not_depend_on_the_other_rows_of_its_batch(model: Path) -> None:
    settings = {"output_schema": MOOD, "constrain": True, "temperature": 1.0, "max_new_tokens": 40}
    together = texts_of(run(model, TEXTS[:8], **settings))
    assert [texts_of(run(model, [text], row, **settings))[0] for row, text in enumerate(TEXTS[:8])] == together


@pytest.mark.parametrize("draws", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 2, "top_p": 0.5}])
@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"choices": ["good", "very good", "schön"]}, "good|very good|schön"),
        ({"regex": "[a-c]{2,4}/[0-9]"}, "[a-c]{2,4}/[0-9]"),
        ({"grammar": 'start: "yes" | "no, " REASON\nREASON: /[a-z]{3}/'}, "yes|no, [a-z]{3}"),
    ],
)
def test_an_answer_has_its_form(model: Path, form: dict[str, Any], pattern: str, draws: dict[str, Any]) -> None:
    done = run(model, TEXTS[:6], answer=form, max_new_tokens=20, **draws)
    assert not done.failed
    assert all(re.fullmatch(pattern, text) for text in texts_of(done))
    assert set(done.columns["finish_reason"].to_pylist()) == {"stop"}


@pytest.fixture
def captioner(tmp_path: Path) -> Path:
    """A random LLaVA whose tokens are bytes, for images of 30 x 30."""
    torch.manual_seed(11)
    tokenizer = byte_tokenizer("<image>")
    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    end = tokenizer.eos_token_id
    text = LlamaConfig(**sizes, vocab_size=len(tokenizer), eos_token_id=end, bos_token_id=None, initializer_range=0.3)
    network = LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=CLIPVisionConfig(image_size=30, patch_size=10, projection_dim=32, **sizes),
            text_config=text,
            image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
            vision_feature_layer=-1,
        )
    )
    network.generation_config.eos_token_id = end
    network.save_pretrained(tmp_path)
    template = (
        "{% for message in messages %}{% for part in message['content'] %}"
        "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endfor %}"
    )
    images = CLIPImageProcessorPil(size={"shortest_edge": 30}, crop_size={"height": 30, "width": 30})
    LlavaProcessor(
        images, tokenizer, patch_size=10, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=template,
    ).save_pretrained(tmp_path)  # fmt: skip
    return tmp_path


def test_captions_fit_a_schema_or_are_one_of_several_labels_with_scores(captioner: Path) -> None:
    images = np.empty(6, object)
    images[:] = list(np.random.default_rng(0).integers(0, 255, (6, 30, 30, 3), np.uint8))
    batch = {"image": images, "row_id": np.array([f"r{row}" for row in range(6)], object)}
    schema = Author.model_json_schema()
    predict = ImageCaptioning(model=str(captioner), output_schema=schema, constrain=True, temperature=1.0).load()
    done: Any = predict(batch)
    for text, reason in zip(texts_of(done), done.columns["finish_reason"].to_pylist(), strict=True):
        assert reason == "stop"
        assert Author.model_validate_json(text)
    labels = ImageCaptioning(model=str(captioner), answer={"choices": ["cat", "dog"]}, label_scores=True).load()
    done = labels(batch)
    assert set(texts_of(done)) <= {"cat", "dog"}
    scores = done.columns["label_scores"].to_pylist()
    assert all(row["cat"] + row["dog"] == pytest.approx(1) for row in scores)
    assert len({row["cat"] for row in scores}) == 6, "the images count"


def test_a_tokenizer_without_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"constrain: expected a fast tokenizer with the decoder ByteLevel or .*found"):
        run(chat_model(tmp_path), TEXTS[:1], output_schema=MOOD, constrain=True, max_new_tokens=12)


def test_a_prompt_that_begins_the_reasoning_is_refused(tmp_path: Path) -> None:
    folder = chat_model(tmp_path, template=TEMPLATE + "<think>")
    with pytest.raises(JobError, match=r"answer.choices: expected a prompt before an answer, found .*enable_thinking"):
        run(folder, TEXTS[:1], answer={"choices": ["a"]}, max_new_tokens=12)


def test_a_model_without_an_end_token_is_refused(tmp_path: Path) -> None:
    folder = byte_model(tmp_path)
    for name in ("config.json", "generation_config.json"):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, "eos_token_id": None}))
    with pytest.raises(JobError, match=r"expected an end token in generation_config\.json"):
        run(folder, TEXTS[:1], answer={"choices": ["a"]})


def test_a_row_fails_whose_allowed_tokens_the_model_excludes(tmp_path: Path) -> None:
    folder = byte_model(tmp_path)
    content = json.loads((folder / "generation_config.json").read_text())
    [letter] = AutoTokenizer.from_pretrained(folder)("b")["input_ids"]
    (folder / "generation_config.json").write_text(json.dumps({**content, "suppress_tokens": [letter]}))
    done = run(folder, TEXTS[:2], answer={"choices": ["bad"]}, max_new_tokens=20)
    assert set(done.failed) == {0, 1}
    assert "no token that the grammar allows: generation_config.json excludes it" in str(done.failed[0])


def test_of_a_complete_text_the_padding_does_not_count() -> None:
    tokens = llguidance.LLTokenizer("byte")
    matchers = [llguidance.LLMatcher(tokens, of_choices([text]).source) for text in ("a", "bcd")]
    rows = ConstrainedRows(matchers, {tokens.eos_token})
    prompt = torch.zeros((2, 1), dtype=torch.long)
    for step in ([ord("a"), ord("b")], [tokens.eos_token, ord("c")], [0, ord("d")]):
        scores = rows(prompt, torch.zeros((2, tokens.vocab_size)))
        assert [row.isfinite().nonzero().flatten().tolist() for row in scores][1] == [step[1]]
        prompt = torch.cat([prompt, torch.tensor(step)[:, None]], 1)
    assert rows.problems == {}
