"""The files that arguments of the user's code name: another content is another version, and nothing else is."""

import os
from pathlib import Path

import pytest

from overnight.tasks.memory.made_rows import ROWS
from overnight.tasks.reuse.kept_answers import ANSWERS
from overnight.tasks.reuse.kept_files import INDEX
from overnight.tasks.storage import argument_files as module
from overnight.tasks.storage.argument_files import argument_files


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "one.bin").write_bytes(b"1")
    return folder


def test_a_text_at_any_depth_that_names_a_file_is_named_by_its_place(weights: Path) -> None:
    kwargs = {"a": "weights/one.bin", "b": {"c": [3, f"file://{weights}/one.bin"]}, "d": "weights", "e": "none.bin"}
    versions = argument_files({**kwargs, "empty": "", "no path": "a\0b", "bytes": b"weights"})
    assert list(versions) == ["kwargs.a", "kwargs.b.c.1", "kwargs.d"]
    assert versions["kwargs.a"] == versions["kwargs.b.c.1"] != versions["kwargs.d"]


def test_a_folder_has_another_version_if_a_file_in_it_has_other_bytes_or_another_name(weights: Path) -> None:
    def version() -> str:
        return argument_files({"folder": "weights"})["kwargs.folder"]

    versions = [version()]
    state = (weights / "one.bin").stat()
    (weights / "one.bin").write_bytes(b"2")
    os.utime(weights / "one.bin", ns=(state.st_atime_ns, state.st_mtime_ns))
    versions.append(version())
    (weights / "one.bin").rename(weights / "two.bin")
    versions.append(version())
    assert len(set(versions)) == 3
    (weights / "__pycache__").mkdir()
    for name in (".hidden", "__pycache__/code.pyc"):
        (weights / name).write_bytes(b"3")
    os.utime(weights / "two.bin")
    assert version() == versions[-1], "no result depends on these"


def test_a_folder_that_is_too_large_to_read_has_sizes_and_times(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 0)
    first = argument_files({"folder": "weights"})
    os.utime(weights / "one.bin", ns=(0, 0))
    assert argument_files({"folder": "weights"}) != first


def test_a_folder_to_which_a_job_publishes_and_folders_around_the_code_do_not_count(weights: Path) -> None:
    (weights / "_overnight").mkdir()
    assert argument_files({"sink": "weights", "here": ".", "above": "..", "root": "/"}) == {}


@pytest.mark.parametrize("ending", [ROWS, ANSWERS])
def test_what_runs_keep_for_later_runs_in_a_folder_does_not_count(weights: Path, ending: str) -> None:
    first = argument_files({"folder": "weights"})
    for name in (f"memory/key/a{ending}", f"memory/key/a{INDEX}", "memory/key/trial.json"):
        (weights / name).parent.mkdir(parents=True, exist_ok=True)
        (weights / name).write_bytes(b"1")
    assert argument_files({"folder": "weights"}) == first
    (weights / "b.npy").write_bytes(b"2")
    assert argument_files({"folder": "weights"}) != first


def test_files_that_code_writes_do_not_count(weights: Path) -> None:
    for name in ("trace", "run.log", "rows.jsonl"):
        (weights.parent / name).write_text("written")
    (weights.parent / "written").mkdir()
    (weights.parent / "written" / "rows.jsonl").write_text("written")
    assert argument_files({"trace": "trace", "log": "run.log", "rows": "rows.jsonl", "folder": "written"}) == {}


def test_a_folder_without_weights_in_which_code_works_does_not_count(weights: Path) -> None:
    (weights.parent / "work").mkdir()
    (weights.parent / "work/job.yaml").write_text("name: a")
    assert argument_files({"folder": "work"}) == {}
    (weights.parent / "work/model.pt").write_bytes(b"1")
    assert argument_files({"folder": "work"}).keys() == {"kwargs.folder"}


def test_what_a_job_publishes_below_a_folder_does_not_count(weights: Path) -> None:
    (weights / "labels.txt").write_text("a")
    before = argument_files({"folder": "weights"})
    (weights / "out" / "_overnight").mkdir(parents=True)
    for name in ("out/0.csv", "out/_overnight/receipt.json"):
        (weights / name).write_text("published")
    assert argument_files({"folder": "weights"}) == before
