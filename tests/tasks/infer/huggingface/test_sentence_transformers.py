"""Models that sentence-transformers runs; the suite of models compares their results."""

import json
from pathlib import Path

import pytest

from overnight.tasks.errors import JobError
from tests.contracts.models.adapters.texts import bert, dense, saved
from tests.tasks.infer.models.test_text_embedding import embed

library = pytest.importorskip("sentence_transformers")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    saved(tmp_path / "bert", bert())
    library.SentenceTransformer(modules=dense(tmp_path / "bert"), device="cpu").save_pretrained(str(tmp_path / "model"))
    return tmp_path / "model"


def test_code_that_a_model_names_outside_the_library_is_not_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for place in (tmp_path, model):
        (place / "canary.py").write_text(f"open({str(tmp_path / 'sung')!r}, 'w')\nclass Module: pass\n")
    modules = json.loads((model / "modules.json").read_text())
    foreign = {"idx": len(modules), "name": "x", "path": "", "type": "canary.Module"}
    (model / "modules.json").write_text(json.dumps([*modules, foreign]))
    with pytest.raises(JobError, match=r"sentence-transformers cannot load it: .*canary\.Module"):
        embed(model, ["the cat"])
    assert not (tmp_path / "sung").exists()
