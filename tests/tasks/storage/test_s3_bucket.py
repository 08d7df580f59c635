"""Objects by obstore: the bytes that s3fs reads, of the version that was listed, and s3fs for what obstore cannot."""

import io
import random
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pytest

from overnight.tasks.ingest.versioned_file import SourceFile, read_whole
from overnight.tasks.storage import s3 as filesystem_of_s3
from overnight.tasks.storage import s3_bucket, s3_store
from overnight.tasks.storage.failed_requests import take_problems
from overnight.tasks.storage.file_info import ObjectChanged, TooLarge
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.s3 import PatientS3
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


@pytest.mark.parametrize("fault", ["fail", "throttle", "time_out", "drop", "lose", "cut"])
def test_a_read_outlasts_what_passes(store: FaultyS3, place: Location, fault: str) -> None:
    (place / "a").write_bytes(b"a" * 100_000)
    files = listed(place)
    store.faults[:] = [fault, fault]
    assert read_whole(files) == [b"a" * 100_000]
    assert store.faults == []
    assert any(place.uri.split("/")[2] in problem for problem in take_problems()), "an incident of the run"


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
    monkeypatch.setattr(filesystem_of_s3, "READ_AHEAD_BYTES", 100)
    source = random.Random(3)
    content = source.randbytes(1000)
    (place / "a").write_bytes(content)
    filesystem, path = (place / "a").open_filesystem()
    opened, plain = filesystem.open(path), io.BytesIO(content)
    for _ in range(200):
        if source.random() < 0.3:
            start, whence = source.choice([(source.randrange(1000), 0), (0, 1), (-source.randrange(500), 2), (2000, 0)])
            assert opened.seek(start, whence) == plain.seek(start, whence)
        size = source.choice([-1, 0, 1, 7, 99, 100, 101, 400])
        assert opened.read(size) == plain.read(size)
        assert opened.tell() == plain.tell()
    opened.seek(0)
    assert opened.read(5) == content[:5]
    with pytest.raises(OSError, match="Invalid argument"):  # as in a local file
        opened.seek(-1001, io.SEEK_END)
    assert opened.read(5) == content[5:10]
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

    bucket = s3_bucket.Bucket(
        SimpleNamespace(call_s3=call_s3, req_kw={"RequestPayer": "requester"}, version_aware=False), "b"
    )
    assert [entry.name for page in bucket.pages("in/") for entry in page] == ["b/in/a"]


def test_a_small_file_is_opened_and_read_with_two_requests(store: FaultyS3, place: Location) -> None:
    (place / "a").write_bytes(b"0123456789")
    [file] = listed(place)
    store.seen.clear()
    with file.open() as opened:
        assert (opened.read(3), opened.read(3), opened.read()) == (b"012", b"345", b"6789")
    assert [line.split()[0] for line in store.seen] == ["HEAD", "GET"]


def test_a_version_in_the_address_is_read_although_a_newer_one_is_there(place: Location, s3: Any) -> None:
    bucket = place.uri.split("/")[2]
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    old = s3.put_object(Bucket=bucket, Key="deep/a", Body=b"old")["VersionId"]
    s3.put_object(Bucket=bucket, Key="deep/a", Body=b"newer")
    versioned = Location(f"{place}/a?versionId={old}")
    assert versioned.read_bytes() == b"old"
    with versioned.open() as file:
        assert file.read() == b"old"
    assert (place / "a").read_bytes() == b"newer"


def test_folders_and_buckets_exist_and_are_no_files(place: Location) -> None:
    (place / "folder/a").write_bytes(b"a")
    bucket = Location(place.uri.rsplit("/", 1)[0])
    assert [there.exists() for there in (place / "folder", place / "folder/", bucket, place / "fold")] == [
        *(True, True, True, False)
    ]
    with pytest.raises(IsADirectoryError):
        (place / "folder").open()


def test_the_store_has_the_region_of_the_bucket(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    store = s3_store.open_store(PatientS3(cache_regions=True), bucket)
    assert store.config["region"] == "eu-central-1"


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "./a", "a/../b", "a/..", "a\tb", "a\x7fb"])
def test_keys_that_obstore_would_change_or_refuse_have_no_path(key: str) -> None:
    assert not s3_store.has_path(key)
    assert all(s3_store.has_path(other) for other in ("a", "a/b", ".a/b.", "a/.../b", "ü [1]*?#"))


def test_the_end_of_an_object_has_at_most_its_bytes(place: Location) -> None:
    for name, content in {"empty": b"", "small": b"abc", "large": b"abcdef"}.items():
        (place / name).write_bytes(content)
        assert (place / name).read_tail(4) == content[-4:]


def test_a_bucket_that_does_not_exist_is_named_as_the_server_does(s3: Any) -> None:
    with pytest.raises(FileNotFoundError, match="bucket does not exist"):
        list(Location("s3://no-such-bucket-here/p").files())


def test_the_name_of_the_bucket_is_part_of_the_host_if_the_configuration_demands_it(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    PatientS3.clear_instance_cache()
    store = s3_store.open_store(PatientS3(), "photos")
    assert store.config["endpoint"] == "https://photos.store.example"
    assert store.config["virtual_hosted_style_request"] == "true"
