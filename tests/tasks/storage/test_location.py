"""Places, on disk and on a real S3 server."""

import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.storage.file_info import NoInputs
from overnight.tasks.storage.input_files import input_files
from overnight.tasks.storage.location import Location, expand

ODD_NAMES = ["plain", "a b", "a#b", "a?b", "a::b", "[x]", "a*b", "ü", "a%20b", "~a"]


@pytest.fixture(params=["disk", "s3", "google", "azure"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty directory on each kind of storage."""
    if request.param == "disk":
        return Location(str(tmp_path))
    if request.param != "s3":
        return Location(f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}")
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    request.getfixturevalue("s3").create_bucket(Bucket=bucket)
    return Location(f"s3://{bucket}/deep")


def test_a_store_whose_driver_is_missing_says_what_to_install():
    with pytest.raises(JobError, match=r"oss://: expected the library ossfs .*pip install ossfs"):
        list(Location("oss://b/x").files())


def test_a_store_that_fsspec_knows_is_read_like_any_other():
    place = Location(f"memory://{uuid.uuid4().hex}/in")
    (place / "deep/b.png").write_bytes(b"two")
    (place / "a.png").write_bytes(b"one")
    (place / "_c.png").write_bytes(b"hidden")
    files = list(place.files((".png",)))
    assert [(file.path, file.size) for file in files] == [("a.png", 3), ("deep/b.png", 3)]
    assert [Location(file.uri).read_bytes() for file in files] == [b"one", b"two"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_what_is_written_is_there_by_any_name_until_it_is_removed(place: Location, name: str):
    file = place / name / "inner" / name
    sibling = place / "axb" / "inner"
    sibling.write_bytes(b"other")
    assert not file.exists()
    file.write_bytes(b"one")
    file.write_bytes(b"two")
    assert file.exists()
    assert file.read_bytes() == b"two"
    with file.open() as opened:
        opened.seek(1)
        assert opened.read() == b"wo"
    assert (place / name).names() == ["inner"]
    assert [found.size for found in (place / name).files()] == [3]
    (place / name).remove()
    assert not file.exists()
    assert (place / name).names() == []
    assert sibling.read_bytes() == b"other"


def test_a_file_is_created_once(place: Location):
    file = place / "lease" / "00000001"
    file.create(b"one")
    with pytest.raises(FileExistsError):
        file.create(b"another")
    assert file.read_bytes() == b"one"


def test_the_end_of_a_file_is_read_and_all_of_a_shorter_one(place: Location):
    (place / "a").write_bytes(b"0123456789")
    assert (place / "a").read_tail(4) == b"6789"
    assert (place / "a").read_tail(11) == b"0123456789"
    with pytest.raises(FileNotFoundError):
        (place / "b").read_tail(4)


def test_a_file_that_is_filled_piece_by_piece_is_there_whole(place: Location):
    with (place / "deep/a").writing() as file:
        file.write(b"one")
        file.write(b"two")
    assert (place / "deep/a").read_bytes() == b"onetwo"


def test_a_listing_says_when_a_file_came(place: Location):
    (place / "a").write_bytes(b"x")
    (found,) = place.files()
    assert found.changed_at == pytest.approx(time.time(), abs=60)
    (place / "a").write_bytes(b"y")
    assert [file.version for file in place.files()] != [found.version]


def test_what_is_not_there_says_so_and_may_be_removed(place: Location):
    missing = place / "missing"
    missing.remove()
    assert missing.names() == []
    with pytest.raises(FileNotFoundError):
        missing.read_bytes()


def test_several_files_are_read_at_once_whatever_their_names_and_without_those_that_are_not_there(place: Location):
    names = {"a": b"1", "deep/b[0]*.json": b"2", "date=2026-01-02/c": b""}
    for name, content in names.items():
        (place / name).write_bytes(content)
    assert place.read_each([*names, "gone", "deep/gone"]) == names
    assert place.read_each([]) == {}


def test_listing_is_sorted_whole_and_free_of_hidden_names(place: Location):
    for name in ("b/2.csv", "b/1.csv", "a.csv", "_x/c.csv", ".d.csv", "b/_e.csv"):
        (place / name).write_bytes(b"x")
    assert [file.path for file in place.files()] == ["a.csv", "b/1.csv", "b/2.csv"]
    assert [file.path for file in (place / "b" / "1.csv").files()] == ["1.csv"]
    assert all(Location(file.uri).read_bytes() == b"x" for file in place.files())


def test_patterns_and_lists_find_the_same_files_everywhere(place: Location):
    for name in ("b/2.csv", "b/deep/1.csv", "a[1].csv", "a1.csv", "_x/c.csv", "c/img_3.csv"):
        (place / name).write_bytes(b"x")

    def found(*names: str) -> list[str]:
        paths = [f"{place.uri}/{name}" for name in names]
        return [file.path for file in input_files(paths, "all", False, (".csv",), may_be_empty=False)]

    assert found("**/*.csv") == ["a1.csv", "a[1].csv", "b/2.csv", "b/deep/1.csv", "c/img_3.csv"]
    assert found("*/") == ["b/2.csv", "b/deep/1.csv", "c/img_3.csv"]
    assert found("c/i*", "b", "a[1].csv", "*/2.csv") == ["a[1].csv", "b/2.csv", "b/deep/1.csv", "c/img_3.csv"]
    with pytest.raises(NoInputs, match=r"that match \S*/c/q\*, found none\. \S*/c has img_3\.csv\. "):
        found("a1.csv", "c/q*")


def test_a_listing_is_never_stale(place: Location):
    (place / "a").write_bytes(b"x")
    assert place.names() == ["a"]
    (place / "b").write_bytes(b"x")
    assert place.names() == ["a", "b"]
    assert len(list(place.files())) == 2


def test_a_file_is_replaced_whole_while_others_read_it(tmp_path: Path):
    file, stop, torn = Location(str(tmp_path / "a")), threading.Event(), []
    contents = [bytes([i]) * 2**20 for i in range(2)]
    file.write_bytes(contents[0])

    def read() -> None:
        while not stop.is_set():
            if (found := file.read_bytes()) not in contents:
                torn.append(len(found))

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(50):
        file.write_bytes(contents[i % 2])
    stop.set()
    reader.join()
    assert torn == []
    assert os.listdir(tmp_path) == ["a"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        Location(str(tmp_path / "folder")).write_bytes(b"x")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_template_is_filled_in_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STORAGE_TEST_SECRET", "hunter2")
    location = Location("s3://${STORAGE_TEST_SECRET}/raw/date={partition}/", "2026-01-02")
    assert location.uri == "s3://hunter2/raw/date=2026-01-02/"
    inner = location / "a"
    assert inner.uri == "s3://hunter2/raw/date=2026-01-02/a"
    assert "hunter2" not in f"{location}{location!r}{inner}{inner.parent}"
    assert str(location) == "s3://${STORAGE_TEST_SECRET}/raw/date=2026-01-02/"
    assert (inner.name, str(inner.parent)) == ("a", "s3://${STORAGE_TEST_SECRET}/raw/date=2026-01-02")


def test_a_variable_that_is_not_set_is_named():
    with pytest.raises(JobError, match="STORAGE_TEST_NOBODY is not set"):
        expand("${STORAGE_TEST_NOBODY}/x")


def test_a_scheme_that_nobody_knows_is_refused():
    with pytest.raises(JobError, match="this filesystem is unknown here"):
        Location("nonsense://x/y").names()


def test_file_uris_and_relative_paths_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Location("a/b").write_bytes(b"x")
    assert Location(f"file://{tmp_path}/a/b").read_bytes() == b"x"
    assert [file.uri for file in Location("a").files()] == [f"{tmp_path}/a/b"]


def test_a_folder_behind_a_link_is_read_as_the_source_and_links_to_files_too(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"x")
    (tmp_path / "real" / "b").symlink_to(tmp_path / "real" / "a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert [(file.path, file.size) for file in Location(str(tmp_path / "link")).files()] == [("a", 1), ("b", 1)]


def test_objects_of_a_longer_prefix_are_not_listed(s3: Any):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    for key in ("in/a", "in2/b", "in/"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x" if key[-1] != "/" else b"")
    assert [file.path for file in Location(f"s3://{bucket}/in").files()] == ["a"]
