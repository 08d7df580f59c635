"""A job as a pipeline: what each model keeps for those behind it, and stages that travel to other processes."""

from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.model import Job
from overnight.flows.job.pipeline import compile_job
from tests.jobs import load

FILTER: dict[str, Any] = {"kind": "filter_rows", "expression": "x > 1"}
TEXT: dict[str, Any] = {"kind": "text_embedding", "model": "m", "text_column": "caption", "name": "b"}


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaves.py").write_text(
        "class Model:\n    def __call__(self, batch): return batch\ndef step(x): return x\n"
    )
    monkeypatch.chdir(tmp_path)


def job(*inference: dict[str, Any], **sink: Any) -> Job:
    source, target = {"kind": "images", "path": "/in"}, {"kind": "parquet", "path": "/out", **sink}
    return load(Path("/x"), source=source, inference=list(inference), sink=target)


def model(**settings: Any) -> dict[str, Any]:
    return {"kind": "python", "target": "leaves:Model", **settings}


def test_a_link_knows_what_is_read_behind_it() -> None:
    chain = compile_job(job(model(name="a"), FILTER, TEXT, {"kind": "drop_columns", "columns": ["z"]})).links
    assert [link.prefix for link in chain] == ["a_", "b_"]
    assert [link.earlier for link in chain] == [(), ("a_",)]
    assert [set(link.read or ()) for link in chain] == [{"z", "caption", "x"}, {"z"}]
    anything = compile_job(job(model(name="a"), {"kind": "python", "target": "leaves:step"}, TEXT)).links[0].read
    assert anything is None, "a function may read any column"
    assert compile_job(job(TEXT, keep_columns=["image"])).links[0].read == ("image",)


def test_heavy_columns_are_not_kept_for_a_deduplicate_that_ends_the_job() -> None:
    pipeline = compile_job(job(model(), {"kind": "deduplicate", "columns": ["image"]}))
    assert [link.read for link in pipeline.links] == [()]
    assert [rule.columns for rule in pipeline.rules] == [("image",)]
