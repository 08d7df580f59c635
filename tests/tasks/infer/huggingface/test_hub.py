"""Hub models, over HTTP from a small server that answers as the hub does."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.hub import commit_now
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from tests.model_hub import MODEL, NEW, OLD, ModelHub, model_hub, use

FILES = {
    "config.json": b'{"model_type": "bert"}',
    "modules.json": b'[{"type": "x.Transformer", "path": ""}]',
    "model.safetensors": b"not fetched by find",
}
Hub = tuple[ModelHub, contextlib.ExitStack]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A running hub, which this process uses, and what stops it."""
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(model_hub(FILES, {"config.json": b'{"model_type": "bert"}'}))
        use(running, str(tmp_path / "cache"), monkeypatch)
        yield running, stack


def test_a_model_that_the_hub_does_not_know_is_refused_with_its_answer(hub: Hub) -> None:
    with pytest.raises(JobError, match=r"(?s)model someone/else: expected a folder.*Repository Not Found"):
        model_location.find("someone/else")


def test_without_network_and_cache_both_ways_out_are_named(hub: Hub) -> None:
    hub[1].close()
    with pytest.raises(JobError, match="the hub cannot be reached"):
        model_location.find(MODEL)


def test_a_revision_is_a_tag_a_branch_or_a_commit(hub: Hub) -> None:
    assert [commit_now(MODEL, revision) for revision in (None, "main", "v1", OLD)] == [NEW, NEW, OLD, OLD]
    assert model_location.find(MODEL, "v1").revision == OLD
    assert model_location.find(MODEL, OLD).settings_file("modules.json") is None
    with pytest.raises(JobError, match=r"revision: expected a commit, tag or branch of the model .* found v7"):
        model_location.find(MODEL, "v7")


def test_a_full_commit_needs_no_request(hub: Hub) -> None:
    assert commit_now(MODEL, OLD) == OLD
    assert hub[0].seen == []


@pytest.mark.parametrize("fault", ["gone", "failing"])
def test_a_hub_that_does_not_answer_leaves_the_commit_of_the_cache(hub: Hub, fault: str) -> None:
    checkpoint = model_location.find(MODEL)
    assert checkpoint.revision == NEW
    assert (checkpoint.settings_file("modules.json"), checkpoint.settings_file("1_Pooling/config.json")) == (
        [{"type": "x.Transformer", "path": ""}],
        None,
    )
    assert sorted(path.name for path in checkpoint.folder.iterdir()) == ["config.json", "modules.json"]
    model_location.find(MODEL, "v1")
    if fault == "gone":
        hub[1].close()
    else:
        hub[0].status = 503
    assert [commit_now(MODEL, revision) for revision in (None, "v1", "v7")] == [NEW, OLD, None]
    assert commit_now("someone/unknown", None) is None
    again = model_location.find(MODEL)
    assert (again.local_files_only, again.folder) == (True, checkpoint.folder)


def test_a_worker_loads_the_commit_of_the_run_after_the_branch_moved(
    hub: Hub,
) -> None:
    model = TextEmbedding(model=MODEL, text_column="text")
    commit = model.hub_commit()
    assert commit == NEW
    hub[0].revisions["main"] = OLD
    assert model.pinned({"hub": MODEL, "commit": commit}).checkpoint().revision == NEW
    assert model.checkpoint().revision == OLD
    assert model.hub_name() == MODEL
    assert TextEmbedding(model=MODEL, revision="v1", text_column="text").hub_name() == f"{MODEL}@v1"


def test_code_of_a_model_runs_only_at_a_full_commit(hub: Hub) -> None:
    for revision in (None, "main", "v1", OLD[:12], OLD.upper()[:-1]):
        model = TextEmbedding(model=MODEL, revision=revision, trust_remote_code=True, text_column="text")
        for refused in (model.fingerprint, model.checkpoint, model.pinned({"commit": NEW}).checkpoint):
            with pytest.raises(JobError, match="trust_remote_code: expected revision to be a full commit") as caught:
                refused()
            assert (revision or "no revision") in str(caught.value)
    model = TextEmbedding(model=MODEL, revision=OLD, trust_remote_code=True, text_column="text")
    assert model.fingerprint() == {"hub": MODEL}
    assert model.checkpoint().runs_code
    assert model.warnings() == [f"text_embedding: trust_remote_code ran the code of {MODEL}@{OLD}."]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", {"auto_map": {"AutoModel": "other/repo--code.Model"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "other/repo--code.Fast"]}}),
        ("config.json", {"text_config": {"auto_map": {"AutoConfig": "other/repo--code.Config"}}}),
        ("modules.json", [{"type": "other/repo--code.Module", "path": ""}]),
    ],
)
def test_code_in_another_repository_is_not_run(hub: Hub, file: str, content: object) -> None:
    hub[0].files[OLD] = {"config.json": b"{}", file: json.dumps(content).encode()}
    with pytest.raises(JobError, match="expected its code beside its weights, found other/repo--code"):
        model_location.find(MODEL, OLD, runs_code=True)
    own = json.dumps(content).replace("other/repo", MODEL).encode()
    hub[0].files[NEW] = {"config.json": b"{}", file: own}
    assert model_location.find(MODEL, NEW, runs_code=True).revision == NEW


def test_an_adapter_of_a_model_elsewhere_is_not_trusted(hub: Hub) -> None:
    hub[0].files[OLD] = {"config.json": b"{}", "adapter_config.json": b'{"base_model_name_or_path": "other/repo"}'}
    with pytest.raises(JobError, match="trust_remote_code: expected a whole model, found an adapter"):
        model_location.find(MODEL, OLD, runs_code=True)
