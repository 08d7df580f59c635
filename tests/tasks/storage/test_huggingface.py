"""Repositories on Hugging Face's hub, read by its driver from a stand-in for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.state.manifest import digest
from overnight.tasks.storage.location import Location
from tests.hub import DATASET, hub
from tests.tasks.ingest.conftest import read_all


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files of the data set."""
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/a.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    (tmp_path / "data/deep/b.jsonl").write_text('{"x": 3}\n')
    (tmp_path / "data/_c.jsonl").write_text("hidden")
    with hub(tmp_path) as address:
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", address)  # both come from HF_ENDPOINT, when this is imported
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield tmp_path


def place(path: str) -> Location:
    return Location(f"hf://datasets/{DATASET}/{path}")


def test_files_are_listed_and_read(folder: Path) -> None:
    assert [(file.path, file.size) for file in place("data").files((".jsonl",))] == [
        ("a.jsonl", 18),
        ("deep/b.jsonl", 9),
    ]
    assert [file.path for file in place("data/a.jsonl").files()] == ["a.jsonl"]
    assert place("data/a.jsonl").read_tail(5) == b": 2}\n"
    assert sorted(read_all(Jsonl(path=str(place("data")))).column("x")) == [1, 2, 3]


def test_a_pattern_lists_the_files_of_one_commit(folder: Path) -> None:
    found = list_inputs(Jsonl(path=[str(place("data/*/b*.jsonl")), str(place("data/a.jsonl"))]), "all")
    assert [file.path for file in found] == ["a.jsonl", "deep/b.jsonl"]


def test_what_is_listed_is_read_whatever_is_committed_since(folder: Path) -> None:
    source = Jsonl(path=str(place("data")))
    files = list_inputs(source, "all")
    (folder / "data/a.jsonl").write_text('{"x": 8}\n{"x": 9}\n')
    (folder / "data/deep/b.jsonl").unlink()
    assert sorted(read_all(source, source.units(files)).column("x")) == [1, 2, 3]
    assert sorted(read_all(source).column("x")) == [8, 9]


def test_only_a_change_below_the_path_makes_other_inputs(folder: Path) -> None:
    source = Jsonl(path=str(place("data")))
    before = digest(list_inputs(source, "all"))
    (folder / "README.md").write_text("a card")
    assert digest(list_inputs(source, "all")) == before
    (folder / "data/new.jsonl").write_text('{"x": 4}\n')
    assert digest(list_inputs(source, "all")) != before


@pytest.mark.parametrize("path", [f"hf://datasets/{DATASET}/nothing", "hf://datasets/me/others/data"])
def test_what_is_not_there_says_so(folder: Path, path: str) -> None:
    with pytest.raises(InputError, match=path):
        list_inputs(Jsonl(path=path), "all")
