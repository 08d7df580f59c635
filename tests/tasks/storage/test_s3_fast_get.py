"""Whole objects by obstore: the same bytes as s3fs, of the version that was asked for, and s3fs for all that fails."""

from typing import Any

import pytest

from overnight.tasks.ingest.versioned_file import SourceFile, read_whole
from overnight.tasks.storage import s3_fast_get
from overnight.tasks.storage.location import Location, open_filesystem
from overnight.tasks.storage.s3_fast_get import QuickGets
from tests.tasks.faulty_s3 import FaultyS3


@pytest.fixture
def got(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes | None]]:
    """What obstore gave, by key."""
    seen: list[tuple[str, bytes | None]] = []
    get = QuickGets.get

    def watched(self: QuickGets, key: str, etag: str) -> bytes | None:
        found = get(self, key, etag)
        seen.append((key, found))
        return found

    monkeypatch.setattr(QuickGets, "get", watched)
    return seen


def listed(place: Location) -> list[SourceFile]:
    return [SourceFile(file.uri, file.version, file.size) for file in place.files()]


def test_objects_are_fetched_by_it_whatever_their_names(store: FaultyS3, place: Location, got: list[Any]) -> None:
    contents = {name: name.encode() * 1000 for name in ("a.png", "b [1]*?.png", "c+d%20é#.png", "e//f.png", "g/.h/i")}
    for name, content in contents.items():
        (place / name).write_bytes(content)
    files = [SourceFile(f"{place}/{name}", "", None) for name in contents]
    assert read_whole(files[:2]) == list(contents.values())[:2]
    assert {key for key, found in got if found is not None} == {"deep/a.png", "deep/b [1]*?.png"}
    assert read_whole(files) == list(contents.values())  # the stand-in refuses e//f.png, after which obstore rests


@pytest.mark.parametrize("ignores", ["", "if-match"])
def test_another_version_than_was_listed_is_not_given(
    store: FaultyS3, place: Location, got: list[Any], ignores: str
) -> None:
    store.ignores = ignores
    (place / "a").write_bytes(b"old")
    (place / "b").write_bytes(b"b")
    first, second = listed(place)
    (place / "a").write_bytes(b"new")
    (changed,) = read_whole([first])
    assert "as listed, found version" in str(changed)
    assert read_whole([second]) == [b"b"]
    assert got == [("deep/a", None), ("deep/b", b"b")]  # one that changed says nothing of the server


def test_an_object_that_is_gone_is_said_to_be(store: FaultyS3, place: Location, got: list[Any]) -> None:
    (place / "a").write_bytes(b"a")
    (place / "b").write_bytes(b"b")
    files = listed(place)
    (place / "a").remove()
    gone, there = read_whole(files)
    assert "found no file any more" in str(gone)
    assert there == b"b"
    read_whole(files)
    assert got.count(("deep/b", b"b")) == 2  # one that is gone says nothing of the server


@pytest.mark.parametrize("fault", ["fail", "throttle", "drop", "lose", "cut"])
def test_what_it_cannot_fetch_s3fs_does(store: FaultyS3, place: Location, got: list[Any], fault: str) -> None:
    (place / "a").write_bytes(b"a" * 100_000)
    store.faults[:] = [fault]
    assert read_whole(listed_once(place, store)) == [b"a" * 100_000]
    assert got == [("deep/a", None)]


def listed_once(place: Location, store: FaultyS3) -> list[SourceFile]:
    """Listed while nothing fails."""
    faults, store.faults[:] = list(store.faults), []
    files = listed(place)
    store.faults[:] = faults
    return files


def test_after_a_failure_it_rests(
    store: FaultyS3, place: Location, got: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "a").write_bytes(b"a")
    files = listed(place)
    now = [1000.0]
    monkeypatch.setattr(s3_fast_get.time, "monotonic", lambda: now[0])
    store.faults[:] = ["fail"]
    for wait in (0, s3_fast_get.REST_SECONDS - 1, 2):
        now[0] += wait
        assert read_whole(files) == [b"a"]
    assert [found for _, found in got] == [None, None, b"a"]
    assert len([line for line in store.seen if line == f"GET /{files[0].uri.removeprefix('s3://')}"]) == 4


def test_settings_that_it_does_not_understand_are_left_to_s3fs(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "a").write_bytes(b"a")
    monkeypatch.setattr(s3_fast_get, "S3Store", lambda *_, **__: 1 / 0)
    assert read_whole(listed(place)) == [b"a"]


def test_credentials_are_those_of_s3fs(store: FaultyS3, place: Location) -> None:
    (place / "a").write_bytes(b"a")
    filesystem, _ = open_filesystem(place.uri)
    asked = []

    def ask() -> Any:
        asked.append(filesystem.ask_for_credentials())
        return asked[-1]

    gets = QuickGets(place.uri.split("/")[2], filesystem.s3, ask)
    assert gets.get("deep/a", "") == b"a"
    assert asked
