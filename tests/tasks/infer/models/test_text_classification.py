"""Texts labelled as transformers' own pipeline labels them, whatever their lengths and company."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    pipeline,
)

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.text_classification import TextClassification
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks, rebatch
from tests.tasks.blocks import source_block
from tests.tasks.infer.models.test_text_embedding import some_texts, word_tokenizer
from tests.tasks.infer.words import WORDS
from tests.tasks.runs import make_run

LABELS = dict(enumerate(["good", "bad", "ugly", "dull"]))
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}


def bert(**settings: Any) -> BertForSequenceClassification:
    known = {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 64, "initializer_range": 0.5, **SIZES}
    return BertForSequenceClassification(BertConfig(**known, **settings))


def gpt2(**settings: Any) -> GPT2ForSequenceClassification:
    known = {"vocab_size": len(WORDS) + 4, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2ForSequenceClassification(GPT2Config(**known, initializer_range=0.5, pad_token_id=None, **settings))


def saved(folder: Path, network: torch.nn.Module) -> Path:
    network.save_pretrained(folder)
    word_tokenizer(cls_token="[CLS]", sep_token="[SEP]", model_max_length=64).save_pretrained(folder)
    return folder


def classify(folder: Path, values: list[Any], **settings: Any) -> dict[str, Any]:
    model = TextClassification(model=str(folder), text_column="body", **settings)
    return model.load()({"body": np.array(values, object)})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    network = bert(id2label=LABELS).eval()
    with torch.no_grad():  # so that the labels differ from text to text
        network.classifier.weight.mul_(20)
        network.classifier.bias.sub_(network(torch.randint(4, len(WORDS) + 4, (64, 12))).logits.mean(0))
    return saved(tmp_path, network)


@pytest.mark.parametrize("batch_size", ["auto", 1, 7])
def test_labels_are_those_of_the_pipeline(model: Path, batch_size: Any) -> None:
    values = some_texts(60, 90)
    expected = pipeline("text-classification", str(model))(values, truncation=True)
    found = classify(model, values, batch_size=batch_size)
    assert found["predicted_label"] == [one["label"] for one in expected]
    assert len(set(found["predicted_label"])) > 1
    np.testing.assert_allclose(found["confidence"], [one["score"] for one in expected], atol=1e-4)
    assert found["confidence"].dtype == np.float32
    assert found.keys() == {"predicted_label", "confidence"}


def test_several_labels_come_as_lists_the_likeliest_first(model: Path) -> None:
    values = some_texts(20, 30)
    expected = pipeline("text-classification", str(model), top_k=3)(values, truncation=True)
    found = classify(model, values, top_k=3)
    assert found["top_labels"].to_pylist() == [[one["label"] for one in row] for row in expected]
    scores = [[one["score"] for one in row] for row in expected]
    np.testing.assert_allclose(found["top_confidences"].to_pylist(), scores, atol=1e-4)
    assert found["predicted_label"] == [row[0]["label"] for row in expected]
    assert len(classify(model, values, top_k=99)["top_labels"][0]) == len(LABELS)


@pytest.mark.parametrize(
    "settings", [{"problem_type": "multi_label_classification", "id2label": LABELS}, {"num_labels": 1}]
)
def test_classes_that_do_not_exclude_each_other_have_a_sigmoid_each(tmp_path: Path, settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    folder, values = saved(tmp_path, bert(**settings)), some_texts(20, 30)
    expected = pipeline("text-classification", str(folder))(values, truncation=True)
    found = classify(folder, values)
    assert found["predicted_label"] == [one["label"] for one in expected]
    np.testing.assert_allclose(found["confidence"], [one["score"] for one in expected], atol=1e-4)


def test_a_decoder_looks_at_the_last_token_of_each_text_not_at_its_padding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder, values = saved(tmp_path, gpt2(id2label=LABELS)), some_texts(30, 30)
    alone = [classify(folder, [value], batch_size=1) for value in values]
    together = classify(folder, values)
    assert together["predicted_label"] == [found["predicted_label"][0] for found in alone]
    np.testing.assert_allclose(together["confidence"], [found["confidence"][0] for found in alone], atol=1e-4)


def test_rows_without_text_are_quarantined_and_the_others_labelled(model: Path, tmp_path: Path) -> None:
    values = ["the cat sat", None, "two old dogs run", ""]
    table = source_block(0, 0, pa.table({"row_id": list("abcd"), "body": values}))
    predictor = TextClassification(model=str(model), text_column="body", top_k=2)
    done = rebatch.joined(Worker(Link(predictor), make_run(tmp_path))(table))
    states = dict(zip(done["row_id"].to_pylist(), done["__state"].to_pylist(), strict=True))
    assert states["a"] == states["c"] == blocks.LIVE
    assert states["b"] == blocks.QUARANTINED
    assert done.filter(pa.array(np.array(done["__state"]) == blocks.LIVE))["top_labels"].null_count == 0


def test_a_model_that_was_not_trained_to_classify_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, bert().bert)
    with pytest.raises(JobError, match="expected all weights of a BertForSequenceClassification"):
        classify(tmp_path, ["the cat"])


def test_a_number_is_no_text(model: Path) -> None:
    with pytest.raises(RowError, match="body: expected a text, found int 3"):
        classify(model, [3])
