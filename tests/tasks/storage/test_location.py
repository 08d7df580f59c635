"""Places, on disk and on a real S3 server."""

import errno
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import AccessDenied, JobError
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


def test_a_store_whose_driver_is_missing_or_that_nobody_knows_is_refused() -> None:
    with pytest.raises(JobError, match="pip install ossfs"):
        list(Location("oss://b/x").files())
    with pytest.raises(JobError, match="unknown"):
        Location("nonsense://x/y").names()


def test_a_working_directory_that_is_gone_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir("gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        Location("state").names()


def test_a_store_that_fsspec_knows_is_read_like_any_other() -> None:
    place = Location(f"memory://{uuid.uuid4().hex}/in")
    for name, content in {"deep/b.png": b"two", "a.png": b"one", "_c.png": b"hidden"}.items():
        (place / name).write_bytes(content)
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


def test_a_link_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").touch()
    for name, target in (("folder", "outside"), ("file", "outside/file"), ("nowhere", "missing")):
        link = tmp_path / name
        link.symlink_to(tmp_path / target)
        Location(f"{link}/").remove()
        assert not link.is_symlink()
    assert (tmp_path / "outside/file").exists()


@pytest.mark.parametrize(("mode", "expected"), [(0o755, 0o700), (0o2775, 0o770)])
def test_a_private_folder_is_its_users_alone_or_of_the_group_of_a_shared_one(
    mode: int, expected: int, tmp_path: Path
) -> None:
    def mode_of(path: Path) -> int:
        return path.stat().st_mode & 0o777

    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    before = os.umask(0o002)
    try:
        for name in ("_overnight", "parent/_overnight"):
            Location(str(shared / name)).make_private()
            assert mode_of(shared / name) == expected
        assert mode_of(shared / "parent") == 0o775  # published rows are there
        (shared / "_overnight").chmod(0o755)
        Location(str(shared / "_overnight")).make_private()
        assert mode_of(shared / "_overnight") == 0o755  # its user gave it this mode
    finally:
        os.umask(before)


def test_rows_on_their_way_to_a_store_are_in_a_folder_of_this_user_alone() -> None:
    with Location(f"memory://{uuid.uuid4().hex}/rows").writing() as file:
        folder = Path(file.name).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_file_is_created_once_and_filled_piece_by_piece(place: Location) -> None:
    (place / "lease/1").create(b"one")
    with pytest.raises(FileExistsError):
        (place / "lease/1").create(b"another")
    assert (place / "lease/1").read_bytes() == b"one"
    with (place / "deep/a").writing() as file:
        file.write(b"one")
        file.write(b"two")
    assert (place / "deep/a").read_bytes() == b"onetwo"


def test_several_files_and_the_end_of_one_are_read_and_what_is_not_there_says_so(place: Location) -> None:
    names = {"a": b"0123456789", "deep/b[0]*.json": b"2", "date=2026-01-02/c": b""}
    for name, content in names.items():
        (place / name).write_bytes(content)
    assert place.read_each([*names, "gone", "deep/gone"]) == names
    assert place.read_each([]) == {}
    assert [(place / "a").read_tail(count) for count in (4, 11)] == [b"6789", b"0123456789"]
    missing = place / "missing"
    missing.remove()
    assert missing.names() == []
    for read in (missing.read_bytes, lambda: missing.read_tail(4)):
        with pytest.raises(FileNotFoundError):
            read()


def test_a_listing_is_sorted_whole_free_of_hidden_names_and_never_stale(place: Location) -> None:
    for name in ("b/2.csv", "b/1.csv", "a.csv", "_x/c.csv", ".d.csv", "b/_e.csv"):
        (place / name).write_bytes(b"x")
    files = list(place.files())
    assert [file.path for file in files] == ["a.csv", "b/1.csv", "b/2.csv"]
    assert [file.path for file in (place / "b/1.csv").files()] == ["1.csv"]
    assert all(Location(file.uri).read_bytes() == b"x" for file in files)
    assert files[0].changed_at == pytest.approx(time.time(), abs=60)
    (place / "a.csv").write_bytes(b"y")
    (place / "b/3.csv").write_bytes(b"x")
    again = list(place.files())
    assert [old.version == new.version for old, new in zip(files, again, strict=False)] == [False, True, True]
    assert len(again) == 4
    assert (place / "b").names() == ["1.csv", "2.csv", "3.csv", "_e.csv"]


def test_patterns_and_lists_find_the_same_files_everywhere(place: Location):
    for name in ("b/2.csv", "b/deep/1.csv", "a[1].csv", "a1.csv", "_x/c.csv", "c/img_3.csv"):
        (place / name).write_bytes(b"x")

    def found(*names: str) -> list[str]:
        paths = [f"{place.uri}/{name}" for name in names]
        return [file.path for file in input_files(paths, "all", False, (".csv",), may_be_empty=False)]

    assert found("**/*.csv") == ["a1.csv", "a[1].csv", "b/2.csv", "b/deep/1.csv", "c/img_3.csv"]
    assert found("*/") == ["b/2.csv", "b/deep/1.csv", "c/img_3.csv"]
    assert found("c/i*", "b", "a[1].csv", "*/2.csv") == ["a[1].csv", "b/2.csv", "b/deep/1.csv", "c/img_3.csv"]
    with pytest.raises(NoInputs, match=r"/c has img_3\.csv\."):
        found("a1.csv", "c/q*")


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


def write_on_full_disk(place: Location) -> None:
    with place.writing() as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "full")


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(AccessDenied, match="no space left"):
        write_on_full_disk(Location(f"{tmp_path}/a"))
    assert os.listdir(tmp_path) == []
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


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(JobError, match="STORAGE_TEST_NOBODY"):
        expand("${STORAGE_TEST_NOBODY}/x")


def test_file_uris_and_relative_paths_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Location("a/b").write_bytes(b"x")
    assert Location(f"file://{tmp_path}/a/b").read_bytes() == b"x"
    assert [file.uri for file in Location("a").files()] == [f"{tmp_path}/a/b"]


def test_objects_of_a_longer_prefix_are_not_listed(s3: Any):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    for key in ("in/a", "in2/b", "in/"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x" if key[-1] != "/" else b"")
    assert [file.path for file in Location(f"s3://{bucket}/in").files()] == ["a"]


@pytest.mark.parametrize("source", ["same", "disk"])
def test_a_copy_is_the_same_file_and_stays_when_the_first_one_changes(
    place: Location, source: str, tmp_path: Path
) -> None:
    first = (place if source == "same" else Location(f"{tmp_path}/other")) / "parts/a [x].part"
    second = place / "out/b.parquet"
    second.write_bytes(b"older")
    first.write_bytes(b"one")
    for _ in range(2):
        first.copy_to(second)
    first.write_bytes(b"two")
    assert (first.read_bytes(), second.read_bytes()) == (b"two", b"one")
    first.remove()
    assert second.read_bytes() == b"one"
    assert second.parent.names() == ["b.parquet"]


def test_a_copy_on_a_disk_is_a_link_unless_a_new_file_would_be_another_user_s_or_have_other_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Location(f"{tmp_path}/a"), Location(f"{tmp_path}/b")
    first.write_bytes(b"one")
    first.copy_to(second)
    assert os.path.samefile(first.uri, second.uri)
    os.chmod(first.uri, 0o600)
    first.copy_to(second)
    assert not os.path.samefile(first.uri, second.uri)
    assert os.stat(second.uri).st_mode & 0o777 == 0o644
    os.chmod(first.uri, 0o644)
    link = os.link

    def link_without_answer(path: str, target: str) -> None:
        link(path, target)
        raise OSError(errno.EIO, "the answer was lost")

    monkeypatch.setattr(os, "link", link_without_answer)
    first.copy_to(second)
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"one")
    assert not os.path.samefile(first.uri, second.uri)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
