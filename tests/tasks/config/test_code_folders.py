"""The folder of a job file goes with the names of its code, and its modules are found after those here."""

import importlib
import pickle
import sys
from pathlib import Path

import pytest

from overnight.tasks.config import code_folders
from overnight.tasks.config.code_folders import CodeFolder, TargetName


def test_a_folder_on_another_machine_is_the_same_one_below_its_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert CodeFolder(f"{tmp_path}/jobs", "elsewhere").here() == f"{tmp_path}/jobs"
    assert CodeFolder("/not/here", "jobs").here() == f"{tmp_path}/jobs"
    assert CodeFolder("/not/here", "../jobs").here() == str(tmp_path), "it was not sent with the working directory"


def test_a_name_keeps_its_folder_when_it_is_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = CodeFolder(str(tmp_path), "jobs")
    name = pickle.loads(pickle.dumps(TargetName("code:Double", folder)))
    assert name == "code:Double"
    assert code_folders.folder_of(name) == folder
    assert code_folders.folders_of(name) == [str(tmp_path)], "the working directory counts once"


def test_a_name_has_the_folder_of_the_outer_call_and_none_outside_of_it(tmp_path: Path) -> None:
    with code_folders.modules_in(str(tmp_path)), code_folders.modules_in("other"):
        found = code_folders.with_folder("code:Double")
        kept = code_folders.with_folder(TargetName("code:Double", CodeFolder("/own", "own")))
    folders = [code_folders.folder_of(name) for name in (found, kept, code_folders.with_folder("code:Double"))]
    assert [folder and folder.path for folder in folders] == [str(tmp_path), "/own", None]
    assert code_folders.code_folder() is None


def test_a_module_of_a_folder_that_leaves_the_path_is_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "code_of_a_folder.py").write_text(f"NAME = {name!r}")
    try:
        for name in "aba":
            code_folders.put_last([str(tmp_path), f"{tmp_path}/{name}"])
            assert sys.path[-2:] == [str(tmp_path), f"{tmp_path}/{name}"]
            module = importlib.import_module("code_of_a_folder")
            assert name == module.NAME
    finally:
        code_folders.put_last([str(tmp_path)])
    assert "code_of_a_folder" not in sys.modules
