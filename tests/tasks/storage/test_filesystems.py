"""Repositories on Hugging Face's hub, read by its driver from a stand-in for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from overnight.tasks.errors import InputError, JobError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.state.manifest import digest
from overnight.tasks.storage.fetch import fetch, list_folder
from overnight.tasks.storage.location import Location
from tests.hub import DATASET, hub
from tests.tasks.ingest.conftest import read_all


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files of the data set."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "data/deep").mkdir(parents=True)
    (folder / "data/a.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    (folder / "data/deep/b.jsonl").write_text('{"x": 3}\n')
    (folder / "data/_c.jsonl").write_text("hidden")
    with hub(folder) as address:
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", address)  # both come from HF_ENDPOINT, when this is imported
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield folder


def place(path: str) -> Location:
    return Location(f"hf://datasets/{DATASET}/{path}")


def test_files_are_listed_and_read(folder: Path) -> None:
    assert [(file.path, file.size) for file in place("data").files((".jsonl",))] == [
        ("a.jsonl", 18),
        ("deep/b.jsonl", 9),
    ]
    assert [file.path for file in place("data/a.jsonl").files()] == ["a.jsonl"]
    assert place("data/a.jsonl").read_tail(5) == b": 2}\n"
    found = list_inputs(Jsonl(path=[str(place("data/*/b*.jsonl")), str(place("data/a.jsonl"))]), "all")
    assert [file.path for file in found] == ["a.jsonl", "deep/b.jsonl"]


def test_what_is_listed_is_read_whatever_is_committed_since(folder: Path) -> None:
    source = Jsonl(path=str(place("data")))
    files = list_inputs(source, "all")
    (folder / "README.md").write_text("a card")
    assert digest(list_inputs(source, "all")) == digest(files), "only a change below the path makes other inputs"
    (folder / "data/a.jsonl").write_text('{"x": 8}\n{"x": 9}\n')
    (folder / "data/deep/b.jsonl").unlink()
    assert digest(list_inputs(source, "all")) != digest(files)
    assert sorted(read_all(source, source.units(files)).column("x")) == [1, 2, 3]
    assert sorted(read_all(source).column("x")) == [8, 9]


def test_weights_are_fetched_and_never_of_another_version_than_was_listed(folder: Path, tmp_path: Path) -> None:
    listed = list_folder(place("data"))
    fetch(place("data"), listed, tmp_path / "fetched")
    assert (tmp_path / "fetched/deep/b.jsonl").read_bytes() == b'{"x": 3}\n'
    (folder / "data/deep/b.jsonl").write_text('{"x": 4}\n')
    with pytest.raises(JobError, match="changed after they were listed"):
        fetch(place("data"), listed, tmp_path / "again")


@pytest.mark.parametrize("path", [f"hf://datasets/{DATASET}/nothing", "hf://datasets/me/others/data"])
def test_what_is_not_there_says_so(folder: Path, path: str) -> None:
    with pytest.raises(InputError, match=path):
        list_inputs(Jsonl(path=path), "all")
