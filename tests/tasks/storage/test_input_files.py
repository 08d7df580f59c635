"""Folders, files and patterns as paths of a source: what each finds, what its files are named, and what finds none."""

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import InputError, JobError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.storage import skipped_files
from overnight.tasks.storage.globs import Pattern

NAMES = ("a/1.csv", "a/2.txt", "a/_x/3.csv", "b/deep/4.csv", "b/img_5.csv", "c[1].csv", "d.csv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def found(folder: Path | str, *names: str, **settings: Any) -> list[str]:
    """The names of the files that a source with these paths below the folder lists."""
    return [file.path for file in list_inputs(Csv(path=[f"{folder}/{name}" for name in names], **settings), "all")]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["c[1].csv", "d.csv"]),
        ("?.csv", ["d.csv"]),
        ("[a-b]/*.csv", ["a/1.csv", "b/img_5.csv"]),
        ("[!a]/*.csv", ["b/img_5.csv"]),
        ("**/*.csv", ["a/1.csv", "b/deep/4.csv", "b/img_5.csv", "c[1].csv", "d.csv"]),
        ("**/deep/*", ["b/deep/4.csv"]),
        ("b/img_*.csv", ["img_5.csv"]),
        ("b/d*", ["deep/4.csv"]),
        ("*/", ["a/1.csv", "b/deep/4.csv", "b/img_5.csv"]),
        ("a/_x/*.csv", ["3.csv"]),
        ("*/_x/*.csv", ["a/_x/3.csv"]),
    ],
)
def test_files_of_a_pattern_are_named_below_the_folder_before_its_first_glob_character(folder, pattern, expected):
    assert found(folder, pattern) == expected


def test_a_name_with_glob_characters_is_that_file_if_it_exists(folder):
    assert found(folder, "c[1].csv") == ["c[1].csv"]
    (folder / "c1.csv").write_bytes(b"x")
    assert found(folder, "c[1].csv") == ["c[1].csv"]
    (folder / "c[1].csv").unlink()
    assert found(folder, "c[1].csv") == ["c1.csv"]


@pytest.mark.parametrize(("names", "files"), [(("*", "a"), ["a/2.txt", "a/_x/3.csv"]), (("*.csv",), [])])
def test_what_a_pattern_matches_and_leaves_out_is_counted(folder, names, files):
    with skipped_files.counting() as passed:
        found(folder, *names)
    told = skipped_files.told(passed.found)
    assert [name for name in NAMES if name in told] == sorted(files, key=NAMES.index)
    assert told.startswith("2 files") if files else passed.found == {}


def test_several_paths_give_each_file_once_under_the_folder_that_they_share(folder):
    assert found(folder, "b", "a/1.csv", "*/img_*.csv", "b/deep") == ["a/1.csv", "b/deep/4.csv", "b/img_5.csv"]
    assert found(folder, "b/deep", "b/img_5.csv") == ["deep/4.csv", "img_5.csv"]
    assert found(folder, "a/_x", "a") == ["1.csv", "_x/3.csv"]
    assert found(folder, "d.csv", "d.csv") == ["d.csv"]
    assert found(folder, "a") == found(folder, "a", "a/") == ["1.csv"]


def test_the_names_are_the_same_wherever_a_variable_leads(folder, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("else[w]here") / "deeper"
    shutil.copytree(folder, elsewhere)
    below, apart = [], []
    for root in (folder, elsewhere):
        monkeypatch.setenv("LISTING_ROOT", str(root))
        monkeypatch.setenv("LISTING_OTHER", str(root / "a"))
        below.append(found("${LISTING_ROOT}", "b", "[ad]*"))
        apart.append([file.path for file in list_inputs(Csv(path=["${LISTING_ROOT}/b", "${LISTING_OTHER}"]), "all")])
    assert below == [["a/1.csv", "b/deep/4.csv", "b/img_5.csv", "d.csv"]] * 2
    assert apart == [["${LISTING_OTHER}/1.csv", "${LISTING_ROOT}/b/deep/4.csv", "${LISTING_ROOT}/b/img_5.csv"]] * 2


def test_the_value_of_a_variable_is_no_pattern(folder, monkeypatch):
    monkeypatch.setenv("LISTING_NAME", "[d]")
    assert found(folder, "*.csv") == ["c[1].csv", "d.csv"]
    assert found(folder, "*${LISTING_NAME}.csv", "a", allow_empty=True) == ["a/1.csv"]
    (folder / "x[d].csv").write_bytes(b"x")
    assert found(folder, "*${LISTING_NAME}.csv") == ["x[d].csv"]


def test_the_partition_is_filled_in_before_and_behind_a_glob_character(tmp_path):
    for day in ("2026-01-02", "2026-01-03"):
        for name in (f"us/{day}/a.csv", f"eu/{day}_b.csv"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"x")
    source = Csv(path=[f"{tmp_path}/us/{{partition}}/", f"{tmp_path}/*/{{partition}}_*.csv"])
    assert source.is_dated
    assert [key for key, _ in source.dated_texts()] == ["path.0", "path.1"]
    assert [file.path for file in list_inputs(source, "2026-01-03")] == ["eu/2026-01-03_b.csv", "us/2026-01-03/a.csv"]


@pytest.mark.parametrize(
    ("paths", "near"),
    [
        (["a/q*.csv"], r"/a has 1\.csv, 2\.txt, _x\."),
        (["*/q.csv"], r"/a has 1\.csv"),
        (["no/where/*.csv"], r" has a, b, c\[1\]\.csv, d\.csv\."),
        (["a", "*.txt"], r"/\*\.txt, found none"),
        (["a", "b/*.c", "d.csv"], r"/b has deep, img_5\.csv"),
        (["a/*.txt"], r"1 file; unknown extension: 2\.txt"),
        (["a", "nowhere"], r"/nowhere, found nothing\. \S* has a, b"),
    ],
)
def test_a_pattern_or_one_of_several_paths_that_finds_none_says_what_is_near(folder, paths, near):
    with pytest.raises(InputError, match=near):
        found(folder, *paths)


def test_patterns_may_find_none_if_the_partition_may_be_empty(folder):
    assert found(folder, "q*", allow_empty=True) == []
    assert found(folder, "q*", "d.csv", "nowhere/*", allow_empty=True) == ["d.csv"]


@pytest.mark.parametrize("path", ["s3://*/x.csv", "/data/a**/x.csv"])
def test_a_pattern_that_cannot_be_one_is_refused(path):
    with pytest.raises(JobError):
        list_inputs(Csv(path=path), "all")


@pytest.mark.parametrize("path", ["", [], ["a", " "], ["a", 3], 7, None, {"a": "b"}])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="path"):
        Csv(path=path)


def test_a_list_of_one_path_is_that_path_also_in_the_fingerprint():
    assert Csv(path=["/in"]).content_settings() == Csv(path="/in").content_settings() == {"kind": "csv", "path": "/in"}


def test_folders_in_which_nothing_can_match_are_not_opened(folder):
    assert not Pattern("*.csv").may_hold("a")
    assert Pattern("[ab]/*/x.csv").may_hold("b/deep")
    assert not Pattern("[ab]/d*/x.csv").may_hold("b/shallow")
    assert Pattern("a/**/x.csv").may_hold("a/b/c/d")


def test_a_pattern_is_listed_on_s3_below_its_literal_beginning_and_beside_other_storage(s3: Any, tmp_path: Path):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    for name in ("a/1.csv", "img/9.csv", "in.csv"):
        s3.put_object(Bucket=bucket, Key=f"in/{name}", Body=b"x")
    place = f"s3://{bucket}/in"
    assert found(place, "im*") == ["img/9.csv"]
    (tmp_path / "1.csv").write_bytes(b"x")
    mixed = list_inputs(Csv(path=[f"{place}/a", str(tmp_path)]), "all")
    assert [file.path for file in mixed] == [f"{tmp_path}/1.csv", f"{place}/a/1.csv"]
