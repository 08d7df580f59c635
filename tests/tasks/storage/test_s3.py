"""S3 that fails for a while, request by request, and one that does not come back."""

import logging
import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from overnight.tasks.errors import AccessDenied, InputError, JobError, ServiceUnavailable
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.lance import Lance
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.storage import s3_retries, s3_store
from overnight.tasks.storage.failed_requests import take_problems
from overnight.tasks.storage.filesystems import open_filesystem
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import storage_options
from overnight.tasks.storage.s3 import PatientS3
from overnight.tasks.storage.s3_retries import retry_timeout_seconds
from tests.tasks.faulty_s3 import FaultyS3
from tests.tasks.ingest.conftest import read_all


def pinned(file: Location) -> Any:
    """The content of a file in the version that is there, as sources read it."""
    filesystem, path = file.open_filesystem()
    [found] = filesystem.cat_versions([path])
    return found


def copied(file: Location) -> bytes:
    filesystem, path = file.open_filesystem()
    filesystem.cp_file(path, f"{path}-2")
    return (file.parent / f"{file.name}-2").read_bytes()


@pytest.mark.parametrize("fault", ["throttle", "fail", "drop", "lose", "stall"])
def test_every_call_outlasts_what_passes(
    store: FaultyS3, place: Location, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PatientS3, "read_timeout", 0.25)
    monkeypatch.setattr(s3_store, "TIMEOUTS", {**s3_store.TIMEOUTS, "read_timeout": "250ms"})
    calls: list[tuple[Callable[[], Any], Any]] = [
        (lambda: (place / "a").write_bytes(b"one"), None),
        ((place / "a").read_bytes, b"one"),
        (lambda: pinned(place / "a"), b"one"),
        (lambda: (place / "a").read_tail(2), b"ne"),
        (lambda: (place / "b").create(b"two"), None),
        (lambda: (place / "b").open().read(), b"two"),
        (lambda: [file.path for file in place.files()], ["a", "b"]),
        (place.names, ["a", "b"]),
        ((place / "a").exists, True),
        (lambda: place.read_each(["a", "gone", "b"]), {"a": b"one", "b": b"two"}),
        (lambda: copied(place / "a"), b"one"),
        ((place / "a").remove, None),
    ]
    for number, (call, expected) in enumerate(calls):
        store.faults[:] = [fault, fault]
        assert call() == expected, number
        assert store.faults == [], number
    assert place.names() == ["a-2", "b"]


@pytest.mark.parametrize(("others", "fault"), [(None, "lose"), (b"theirs", "drop"), (b"theirs", "exist")])
def test_whose_a_created_object_is_is_known_whatever_happens_to_the_answer(
    store: FaultyS3, place: Location, others: bytes | None, fault: str
) -> None:
    """`exist`: AWS sends `<Condition>If-None-Match</Condition>`, which s3fs looks for; ministack does not."""
    if others:
        (place / "lease").create(others)
    store.faults[:] = [fault]
    if others:
        with pytest.raises(FileExistsError):
            (place / "lease").create(b"mine")
    else:
        (place / "lease").create(b"mine")
    assert (place / "lease").read_bytes() == (others or b"mine")


def test_a_body_that_breaks_off_is_read_again(store: FaultyS3, place: Location) -> None:
    content = os.urandom(2**20)
    (place / "a").write_bytes(content)
    with (place / "a").open() as file:
        store.faults[:] = ["cut", "drop"]
        assert file.read() == content
    store.faults[:] = ["cut", "throttle", "cut"]
    assert pinned(place / "a") == content
    assert store.faults == []


def test_small_files_cost_one_request_each(store: FaultyS3, place: Location) -> None:
    for name in "abc":
        (place / name).write_bytes(name.encode())
    files = list(place.files())
    filesystem, root = place.open_filesystem()
    store.seen.clear()
    etags = {f"{root}/{file.path}": file.version for file in files}
    assert filesystem.cat_versions(list(etags), list(etags.values())) == [b"a", b"b", b"c"]
    assert sorted(store.seen) == [f"GET /{path}" for path in etags]
    store.seen.clear()
    assert place.read_each(["a", "gone"]) == {"a": b"a"}
    assert sorted(store.seen) == [f"GET /{root}/a", f"GET /{root}/gone"]


@pytest.mark.parametrize(
    ("variable", "written"),
    [(s3_retries.RETRY_SECONDS, written) for written in ("2 minutes", "-1", "nan", "inf")]
    + [(s3_retries.FORMERLY, "3")],
)
def test_a_time_that_is_no_number_of_seconds_or_has_its_former_name_is_refused(
    variable: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, written)
    with pytest.raises(JobError, match=s3_retries.RETRY_SECONDS):
        retry_timeout_seconds()


def raise_pinned(file: Location) -> None:
    raise pinned(file)


@pytest.mark.parametrize(
    "call", [lambda file: file.write_bytes(b"one"), lambda file: list(file.parent.files()), raise_pinned]
)
def test_patience_ends_with_an_error_and_the_log_and_the_run_know_meanwhile_what_is_waited_for(
    call: Callable[[Location], Any],
    store: FaultyS3,
    place: Location,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(s3_retries.RETRY_SECONDS, "2")
    monkeypatch.setattr(s3_retries, "LOG_AFTER_SECONDS", 0.5)
    (place / "a").write_bytes(b"one")
    assert pinned(place / "a") == b"one"
    take_problems()
    s3_retries._logged.clear()
    store.seen.clear()
    store.always = "throttle"
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "overnight"), pytest.raises(ServiceUnavailable, match="503"):
        call(place / "a")
    assert 2 <= time.monotonic() - started < 40
    assert len(store.seen) > 2
    assert [record.message.partition(":")[0] for record in caplog.records] == ["waiting for storage"]
    assert {problem.partition(": ")[0] for problem in take_problems()} == {"waited for the storage"}


def test_another_aiobotocore_than_the_one_whose_event_is_answered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiobotocore.__version__", "3.11.0")
    with pytest.raises(JobError, match=r"3\.11\.0"):
        s3_retries.retrying_session()


def test_a_filesystem_that_went_to_another_process_waits_as_well(store: FaultyS3, place: Location) -> None:
    (place / "a").write_bytes(b"one")
    filesystem, path = (place / "a").open_filesystem()
    sent = pickle.dumps(filesystem)
    PatientS3.clear_instance_cache()
    store.faults[:] = ["fail", "drop"]
    assert pickle.loads(sent).cat_file(path) == b"one"


def test_a_process_that_was_forked_leaves_to_s3fs_what_would_hang(store: FaultyS3, place: Location) -> None:
    (place / "a").write_bytes(b"one")
    assert pinned(place / "a") == b"one"
    bucket = place.uri.split("/")[2]

    def read() -> None:
        PatientS3.clear_instance_cache()
        content = open_filesystem(place.uri)[0].bucket(bucket).get("deep/a")
        os._exit(0 if content == pinned(place / "a") == b"one" else 1)

    forked = multiprocessing.get_context("fork").Process(target=read)
    forked.start()
    forked.join(30)
    forked.kill()
    assert forked.exitcode == 0


def test_an_archived_object_costs_its_own_row_and_says_where_it_is(place: Location, s3: Any) -> None:
    bucket, prefix = place.uri.removeprefix("s3://").split("/", 1)
    for name, kind in (("a", "STANDARD"), ("b", "DEEP_ARCHIVE"), ("c", "STANDARD")):
        s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}.jsonl", Body=b'{"n": 1}\n', StorageClass=kind)
        s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}.txt", Body=b"text", StorageClass=kind)
    for source, lost in ((Jsonl(path=place.uri), "b.jsonl"), (Text(path=place.uri), "b.txt")):
        units = source.units(list_inputs(source, "all"))
        PatientS3.clear_instance_cache()  # as in a worker, whose first answer this is
        found = read_all(source, units)
        assert (len(found.good), found.types) == (2, {lost: "SourceArchived"})
        assert "DEEP_ARCHIVE" in found.bad[lost]
    with pytest.raises(AccessDenied, match="DEEP_ARCHIVE"):
        (place / "b.txt").read_bytes()


def test_anonymous_requests_are_unsigned_and_others_are_signed(store: FaultyS3, place: Location, s3: Any) -> None:
    write_deltalake(f"{place}/delta", pa.table({"n": [1]}), storage_options=storage_options(str(place)))
    lance.write_dataset(pa.table({"n": [1]}), f"{place}/table.lance", storage_options=storage_options(str(place)))
    (place / "texts/a.txt").write_bytes(b"text")
    bucket = place.uri.split("/")[2]
    for found in s3.list_objects_v2(Bucket=bucket)["Contents"]:
        s3.put_object_acl(Bucket=bucket, Key=found["Key"], ACL="public-read")
    for anonymous in (True, False):
        for kind, name in {Text: "texts", Delta: "delta", Lance: "table.lance"}.items():
            store.signatures.clear()
            assert len(read_all(kind(path=f"{place}/{name}", anonymous=anonymous)).good) == 1
            assert {bool(signature) for signature in store.signatures} == {not anonymous}, kind


def test_a_store_on_this_machine_is_asked_without_the_proxy(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "elsewhere")
    PatientS3.clear_instance_cache()
    (place / "a.txt").write_bytes(b"text")
    assert read_all(Text(path=place.uri)).column("text") == ["text"]
    lance.write_dataset(pa.table({"n": [1]}), f"{place}/table.lance", storage_options=storage_options(str(place)))
    assert read_all(Lance(path=f"{place}/table.lance")).column("n") == [1]


def test_no_permission_is_told_at_once(store: FaultyS3, place: Location) -> None:
    store.always = "forbid"
    for call, verb in (
        (lambda: (place / "a").write_bytes(b"one"), "write"),
        (lambda: (place / "a").create(b"one"), "write"),
        ((place / "a").read_bytes, "read"),
        (lambda: (place / "a").read_tail(2), "read"),
        ((place / "a").open, "read"),
        (lambda: place.read_each(["a", "b"]), "read"),
        (place.names, "list"),
        ((place / "a").remove, "remove"),
    ):
        store.seen.clear()
        with pytest.raises(AccessDenied, match=rf"no permission to {verb} {place}") as refusal:
            call()
        assert "Error performing" not in str(refusal.value), "obstore's own words"
        assert len(store.seen) == len(set(store.seen)), "asked again"


def test_credentials_that_expired_end_the_run_and_cost_no_row(store: FaultyS3, place: Location) -> None:
    (place / "a.png").write_bytes(b"a")
    source = Images(path=place.uri)
    units = source.units(list_inputs(source, "all"))
    store.always = "expire"
    for read in ((place / "a.png").read_bytes, lambda: read_all(source, units)):
        with pytest.raises(AccessDenied, match=r"GetObject on s3://\S+/a.png: The provided token has expired"):
            read()


def test_a_source_that_may_not_be_listed_fails_and_a_single_file_costs_its_row(
    store: FaultyS3, place: Location
) -> None:
    for name in "abc":
        (place / f"{name}.png").write_bytes(name.encode())
    source = Images(path=place.uri)
    units = source.units(list_inputs(source, "all"))
    store.always_for["b.png"] = "forbid"
    found = read_all(source, units)
    assert (len(found.good), set(found.types.values())) == (2, {"PermissionError"})
    store.always_for.clear()
    store.always = "forbid"
    with pytest.raises(InputError, match=f"no permission to list {place}"):
        list_inputs(source, "all")
