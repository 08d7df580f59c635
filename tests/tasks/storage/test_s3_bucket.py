"""Objects by obstore: the bytes that s3fs reads, of the version that was listed, and s3fs for what obstore cannot."""

import io
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from overnight.tasks.ingest.versioned_file import SourceFile, read_whole
from overnight.tasks.storage import s3_bucket, s3_pinned, s3_store
from overnight.tasks.storage.failed_requests import take_problems
from overnight.tasks.storage.file_info import ObjectChanged, TooLarge
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.s3 import PatientS3
from overnight.tasks.storage.s3_pinned import open_pinned
from tests.tasks.faulty_s3 import FaultyS3

# The S3 server of the tests refuses some more, which AWS takes.
WITHOUT_PATH = ["e//f.png", "e/./f.png", "e/../f.png", "a\tb.png"]


@pytest.fixture
def got(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that obstore gave."""
    seen: list[str] = []
    get = obstore.get

    def watched(store: Any, key: str, **options: Any) -> Any:
        found = get(store, key, **options)
        seen.append(key)
        return found

    monkeypatch.setattr(s3_bucket.obstore, "get", watched)
    return seen


def listed(place: Location) -> list[SourceFile]:
    return [SourceFile(file.uri, file.version, file.size) for file in place.files()]


def test_objects_are_read_whatever_their_names(store: FaultyS3, place: Location, got: list[str], s3: Any) -> None:
    with_path = ["a.png", "b [1]*?.png", "c+d%20é#.png", "g/.h/i", "%2F'.png", '%252F"&;:@=,.png', "🦉\\|.png"]
    names = [*with_path, *WITHOUT_PATH]
    bucket = place.uri.split("/")[2]
    for name in names:
        s3.put_object(Bucket=bucket, Key=f"deep/{name}", Body=name.encode() * 1000)
    files = [SourceFile(f"{place}/{name}", "", None) for name in names]
    assert read_whole(files) == [name.encode() * 1000 for name in names]
    assert sorted(got) == sorted(f"deep/{name}" for name in with_path)  # the others say nothing of the server


def test_an_object_above_the_limit_is_not_read(store: FaultyS3, place: Location) -> None:
    names = ["a", "e//a"]  # s3fs reads the second
    for name in names:
        (place / name).write_bytes(b"12345")
    files = [SourceFile(f"{place}/{name}", "", None) for name in names]
    assert read_whole(files, 5) == [b"12345"] * 2
    assert [(type(found), getattr(found, "size", None)) for found in read_whole(files, 4)] == [(TooLarge, 5)] * 2


def test_a_local_file_above_the_limit_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    file = SourceFile(str(tmp_path / "a"), "", None)
    assert read_whole([file], 5) == [b"12345"]
    [found] = read_whole([file], 4)
    assert isinstance(found, TooLarge)
    assert found.size == 5


@pytest.mark.parametrize("ignores", ["", "if-match"])
@pytest.mark.parametrize("name", ["a", "e//a"])
def test_another_version_than_was_listed_is_not_given(
    store: FaultyS3, place: Location, got: list[str], s3: Any, ignores: str, name: str
) -> None:
    store.ignores = ignores
    bucket = place.uri.split("/")[2]
    s3.put_object(Bucket=bucket, Key=f"deep/{name}", Body=b"old")
    for other in "yz":
        (place / other).write_bytes(other.encode())
    files = listed(place)
    s3.put_object(Bucket=bucket, Key=f"deep/{name}", Body=b"new")
    (place / "y").remove()
    changed, gone, there = read_whole(files)
    assert (type(changed).__name__, type(gone).__name__, there) == ("SourceChanged", "SourceVanished", b"z")
    read_whole(files)
    assert got.count("deep/z") == 2  # one that changed or is gone says nothing of the server


@pytest.mark.parametrize("fault", ["fail", "throttle", "drop", "lose", "cut"])
def test_a_read_outlasts_what_passes(store: FaultyS3, place: Location, fault: str) -> None:
    (place / "a").write_bytes(b"a" * 100_000)
    files = listed(place)
    store.faults[:] = [fault, fault]
    assert read_whole(files) == [b"a" * 100_000]
    assert store.faults == []
    assert any(place.uri.split("/")[2] in problem for problem in take_problems()), "an incident of the run"


def test_after_a_failure_that_only_obstore_has_it_rests(
    store: FaultyS3, place: Location, got: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "a").write_bytes(b"a")
    files = listed(place)
    now, get, asked = [1000.0], s3_bucket.obstore.get, []

    def failing(*arguments: Any, **options: Any) -> Any:
        asked.append(now[0])
        if now[0] == 1000:
            raise obstore.exceptions.GenericError("301 Moved Permanently\n\nDebug source: much")
        return get(*arguments, **options)

    monkeypatch.setattr(s3_bucket.obstore, "get", failing)
    monkeypatch.setattr(s3_bucket.time, "monotonic", lambda: now[0])
    for wait in (0, s3_bucket.REST_SECONDS - 1, 2):
        now[0] += wait
        assert read_whole(files) == [b"a"]
    assert asked == [1000.0, 1031.0]
    assert got == ["deep/a"]


@pytest.mark.parametrize("elsewhere", [None, {"endpoint": "http://127.0.0.1:9"}])
def test_a_store_that_only_s3fs_reaches_costs_no_patience(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch, elsewhere: dict[str, str] | None
) -> None:
    """obstore refuses the settings, or finds nothing at its address."""
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "60")
    opened = (lambda *name, **settings: S3Store(*name, **settings | elsewhere)) if elsewhere else lambda *_, **__: 1 / 0
    monkeypatch.setattr(s3_store, "S3Store", opened)
    (place / "a").write_bytes(b"a")
    started = time.monotonic()
    assert read_whole(listed(place)) == [b"a"]
    assert time.monotonic() - started < 30


def test_missing_credentials_are_no_fault_of_the_object(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "a").write_bytes(b"a")
    files = listed(place)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    PatientS3.clear_instance_cache()
    [found] = read_whole(files)
    assert type(found).__name__ == "NoCredentialsError"


def test_an_object_is_read_piece_by_piece_in_one_version(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_pinned, "READ_AHEAD_BYTES", 100)
    source = random.Random(3)
    content = source.randbytes(1000)
    (place / "a").write_bytes(content)
    filesystem, path = (place / "a").open_filesystem()
    opened, plain = open_pinned(filesystem, path, filesystem.info(path)), io.BytesIO(content)
    for _ in range(200):
        if source.random() < 0.3:
            start, whence = source.choice([(source.randrange(1000), 0), (0, 1), (-source.randrange(500), 2), (2000, 0)])
            assert opened.seek(start, whence) == plain.seek(start, whence)
        size = source.choice([-1, 0, 1, 7, 99, 100, 101, 400])
        assert opened.read(size) == plain.read(size)
        assert opened.tell() == plain.tell()
    opened.seek(0)
    assert opened.read(5) == content[:5]
    (place / "a").write_bytes(content[::-1])
    with pytest.raises(ObjectChanged):
        opened.read()


def test_an_answer_without_a_key_is_not_the_last_one_for_that() -> None:
    first: dict[str, Any] = {"IsTruncated": True, "NextContinuationToken": "next"}
    last = {"Contents": [{"Key": "in/a", "Size": 1}]}
    answers = iter([first, last])

    def call_s3(_: str, **options: Any) -> dict[str, Any]:
        answer = next(answers, None)
        assert answer is not None, "expected no further request"
        assert options.get("ContinuationToken") == (None if answer is first else "next")
        return answer

    bucket = s3_bucket.Bucket(SimpleNamespace(call_s3=call_s3, req_kw={"RequestPayer": "requester"}), "b")
    assert [entry.name for page in bucket.pages("in/") for entry in page] == ["b/in/a"]


def test_a_small_file_is_opened_and_read_with_two_requests(store: FaultyS3, place: Location) -> None:
    (place / "a").write_bytes(b"0123456789")
    [file] = listed(place)
    store.seen.clear()
    with file.open() as opened:
        assert (opened.read(3), opened.read(3), opened.read()) == (b"012", b"345", b"6789")
    assert [line.split()[0] for line in store.seen] == ["HEAD", "GET"]
