"""Folders and files of stores, fetched as they were listed."""

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import AccessDenied, JobError, ServiceUnavailable
from overnight.tasks.storage import s3 as filesystem
from overnight.tasks.storage.fetch import fetch, list_file, list_folder, size_of
from overnight.tasks.storage.location import Location
from tests.tasks.faulty_s3 import FaultyS3

WEIGHTS = os.urandom(100_000)


@pytest.fixture
def model(place: Location) -> Location:
    """A folder with names as models have them, and with some that are not part of one."""
    for name, content in {"config.json": b"{}", "model.safetensors": WEIGHTS, "1_Pooling/config.json": b"{ }",
                          "_code.py": b"", ".gitattributes": b"x"}.items():  # fmt: skip
        (place / "clip" / name).write_bytes(content)
    (place / "clipper/config.json").write_bytes(b"another model")
    return place / "clip"


def test_a_folder_is_fetched_whole_in_pieces(
    s3: Any, model: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that stands for a folder is no file."""
    bucket, _, key = model.uri.removeprefix("s3://").partition("/")
    for folder in (key, f"{key}/1_Pooling"):
        s3.put_object(Bucket=bucket, Key=f"{folder}/")
    monkeypatch.setattr(filesystem, "PIECE_BYTES", 1000)
    listed = list_folder(model)
    assert set(listed) == {"1_Pooling/config.json", "_code.py", "config.json", "model.safetensors"}
    assert size_of(listed) == len(WEIGHTS) + 5
    fetch(model, listed, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == set(listed)


@pytest.mark.parametrize("piece_bytes", [2**20, 50_000])
def test_what_passes_costs_only_time(
    store: FaultyS3, model: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(filesystem, "PIECE_BYTES", piece_bytes)
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "60")
    listed = list_folder(model)
    store.faults[:] = ["cut", "fail", "drop", "throttle", "cut", "cut", "cut"]
    fetch(model, listed, tmp_path)
    assert store.faults == []
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_a_later_try_fetches_only_what_is_missing(model: Location, tmp_path: Path) -> None:
    listed = list_folder(model)
    (tmp_path / "model.safetensors").write_bytes(b"k" * len(WEIGHTS))  # complete, or it would have no name
    (tmp_path / "config.json.0.tmp").write_bytes(b"half of a file")
    fetch(model, listed, tmp_path)
    assert not (tmp_path / "config.json.0.tmp").exists()
    assert (tmp_path / "model.safetensors").read_bytes() == b"k" * len(WEIGHTS)
    assert (tmp_path / "config.json").read_bytes() == b"{}"


def test_a_file_that_changed_or_vanished_since_the_listing_is_never_taken(model: Location, tmp_path: Path) -> None:
    before, weights = list_folder(model), model / "model.safetensors"
    weights.write_bytes(WEIGHTS)
    assert list_folder(model) == before, "a copy of the same bytes is the same version"
    for change in (lambda: weights.write_bytes(WEIGHTS[::-1]), weights.remove):
        change()
        assert list_folder(model) != before
        with pytest.raises(JobError, match="changed after they were listed"):
            fetch(model, before, tmp_path)
        assert not (tmp_path / "model.safetensors").exists()


def test_a_name_that_leads_out_of_the_folder_is_refused(model: Location, tmp_path: Path) -> None:
    for name in ("../escaped", "a/../../escaped", "/escaped", "a//b"):
        with pytest.raises(JobError):
            fetch(model, {name: "2 etag"}, tmp_path / "in/cache")
    assert not list(tmp_path.iterdir())


def test_a_single_file_is_listed_with_what_belongs_to_it(place: Location, tmp_path: Path) -> None:
    for name in ("scorer.onnx", "scorer.onnx.data", "scorer.onnx_data", "scorer.onnx.txt", "other.onnx.data"):
        (place / name).write_bytes(name.encode())
    assert set(list_file(place / "scorer.onnx")) == {"scorer.onnx"}
    listed = list_file(place / "scorer.onnx", beside="data")
    assert set(listed) == {"scorer.onnx", "scorer.onnx.data", "scorer.onnx_data"}
    fetch(place / "scorer.onnx", listed, tmp_path, is_file=True)
    assert (tmp_path / "scorer.onnx.data").read_bytes() == b"scorer.onnx.data"


def test_folders_and_files_are_told_apart_and_missing_ones_noticed(model: Location) -> None:
    with pytest.raises(NotADirectoryError):
        list_folder(model / "config.json")
    with pytest.raises(IsADirectoryError):
        list_file(model)
    for missing in (model / "no-such", Location(f"s3://no-such-{uuid.uuid4().hex}/clip")):
        with pytest.raises(FileNotFoundError):
            list_folder(missing)
        with pytest.raises(FileNotFoundError):
            list_file(missing)


def test_a_store_that_stays_away_or_refuses_is_reported(store: FaultyS3, model: Location) -> None:
    store.faults[:] = ["forbid"] * 4
    with pytest.raises(AccessDenied):
        list_folder(model)
    store.faults.clear()
    store.always = "drop"
    with pytest.raises(ServiceUnavailable):
        list_folder(model)


@pytest.mark.parametrize("cloud", ["google", "azure"])
def test_other_stores_are_compared_after_the_read(cloud: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = Location(f"{request.getfixturevalue(cloud)}/{uuid.uuid4().hex}")
    for name in ("config.json", "deep/model.safetensors"):
        (place / name).write_bytes(WEIGHTS)
    listed = list_folder(place)
    fetch(place, listed, tmp_path / "whole")
    assert (tmp_path / "whole/deep/model.safetensors").read_bytes() == WEIGHTS
    (place / "config.json").write_bytes(WEIGHTS[::-1])
    with pytest.raises(JobError, match="changed after they were listed"):
        fetch(place, listed, tmp_path / "changed")
    assert not (tmp_path / "changed/config.json").exists()
    assert list_file(place / "config.json").keys() == {"config.json"}
