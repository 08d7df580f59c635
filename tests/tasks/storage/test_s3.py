"""S3 that fails for a while, request by request, and one that does not come back."""

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
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
from overnight.tasks.storage.s3_pinned import read_versions
from overnight.tasks.storage.s3_retries import retry_timeout_seconds
from tests.tasks.faulty_s3 import FaultyS3
from tests.tasks.ingest.conftest import read_all


@pytest.mark.parametrize("fault", ["throttle", "fail", "drop", "lose"])
def test_every_call_outlasts_what_passes(store: FaultyS3, place: Location, fault: str):
    calls: list[tuple[str, Any]] = [
        ("write", lambda: (place / "a").write_bytes(b"one")),
        ("read", (place / "a").read_bytes),
        ("read the end", lambda: (place / "a").read_tail(2)),
        ("create", lambda: (place / "b").create(b"two")),
        ("open", lambda: (place / "b").open().read()),
        ("list", lambda: [file.path for file in place.files()]),
        ("names", place.names),
        ("exists", (place / "a").exists),
        ("remove", (place / "a").remove),
    ]
    outcomes = {}
    for name, call in calls:
        store.faults[:] = [fault, fault]
        outcomes[name] = call()
        assert store.faults == [], name
    assert outcomes == {
        "write": None, "read": b"one", "create": None, "open": b"two", "list": ["a", "b"], "names": ["a", "b"],
        "read the end": b"ne", "exists": True, "remove": None,
    }  # fmt: skip
    assert place.names() == ["b"]


def test_a_copy_outlasts_what_passes(store: FaultyS3, place: Location):
    (place / "a").write_bytes(b"one")
    filesystem, path = (place / "a").open_filesystem()
    store.faults[:] = ["fail", "drop", "lose"]
    filesystem.cp_file(path, f"{path}2")
    assert (place / "a2").read_bytes() == b"one"


@pytest.mark.parametrize("others", [None, b"theirs"])
def test_whose_a_created_object_is_is_known_although_the_answer_was_lost(
    store: FaultyS3, place: Location, s3: Any, others: bytes | None
):
    if others:
        (place / "lease").create(others)
        store.faults[:] = ["drop"]
        with pytest.raises(FileExistsError):
            (place / "lease").create(b"mine")
    else:
        store.faults[:] = ["lose"]
        (place / "lease").create(b"mine")
    assert (place / "lease").read_bytes() == (others or b"mine")


def test_an_object_that_is_there_is_told_by_servers_that_do_not_name_the_condition(store: FaultyS3, place: Location):
    """AWS and moto send `<Condition>If-None-Match</Condition>`, which s3fs looks for; ministack does not."""
    (place / "file").write_bytes(b"theirs")
    store.faults[:] = ["exist"]
    with pytest.raises(FileExistsError):
        (place / "file").create(b"mine")


def test_a_body_that_breaks_off_is_read_again(store: FaultyS3, place: Location):
    content = os.urandom(2**20)
    (place / "a").write_bytes(content)
    with (place / "a").open() as file:
        store.faults[:] = ["cut", "drop"]
        assert file.read() == content
    filesystem, path = (place / "a").open_filesystem()
    store.faults[:] = ["cut", "throttle", "cut"]
    assert read_versions(filesystem, [path], [""]) == [content]
    assert store.faults == []


def test_small_files_cost_one_request_each(store: FaultyS3, place: Location):
    for name in "abc":
        (place / name).write_bytes(name.encode())
    files = list(place.files())
    filesystem, root = place.open_filesystem()
    store.seen.clear()
    etags = {f"{root}/{file.path}": file.version for file in files}
    assert read_versions(filesystem, list(etags), list(etags.values())) == [b"a", b"b", b"c"]
    assert sorted(store.seen) == [f"GET /{path}" for path in etags]


def test_the_former_name_of_the_time_is_refused_with_the_new_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OVERNIGHT_STORAGE_PATIENCE", "3")
    told = "OVERNIGHT_STORAGE_PATIENCE is called OVERNIGHT_STORAGE_RETRY_SECONDS now"
    with pytest.raises(JobError, match=told):
        retry_timeout_seconds()


@pytest.mark.parametrize("written", ["2 minutes", "-1", "nan", "inf"])
def test_a_time_that_is_no_number_of_seconds_is_refused(written: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", written)
    with pytest.raises(JobError, match=f"expected a number of seconds, found '{written}'"):
        retry_timeout_seconds()


def test_patience_ends_with_a_sentence_and_says_meanwhile_what_is_waited_for(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "3")
    (place / "a").write_bytes(b"one")
    store.seen.clear()
    store.always = "throttle"
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "overnight"), pytest.raises(ServiceUnavailable) as caught:
        (place / "a").write_bytes(b"one")
    assert 3 <= time.monotonic() - started < 40
    assert f"PutObject on {store.url}/{place.uri.removeprefix('s3://')}/a was tried " in str(caught.value)
    assert "times in 3 s and failed, last with 503 SlowDown: Please reduce your request rate." in str(caught.value)
    assert len(store.seen) > 2
    assert len([r for r in caplog.records if "waiting for storage: PutObject on" in r.message]) <= 1


@pytest.mark.parametrize("call", ["read", "list"])
def test_patience_with_a_listing_and_a_pinned_read_ends_with_a_sentence_too(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
):
    (place / "a").write_bytes(b"one")
    filesystem, path = (place / "a").open_filesystem()
    assert read_versions(filesystem, [path], [""]) == [b"one"]
    monkeypatch.setattr(s3_store, "LOG_EVERY_SECONDS", 0.5)
    s3_retries._logged.clear()
    store.always = "throttle"
    with caplog.at_level(logging.WARNING, "overnight"):
        if call == "read":
            [found] = read_versions(filesystem, [path], [""])
        else:
            with pytest.raises(ServiceUnavailable) as caught:
                list(place.files())
            found = caught.value
    assert isinstance(found, ServiceUnavailable)
    assert "503" in str(found)
    assert any("waiting for storage" in record.message for record in caplog.records)
    assert {problem.partition(": ")[0] for problem in take_problems()} == {"waited for the storage"}


def test_another_aiobotocore_than_the_one_whose_event_is_answered_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("aiobotocore.__version__", "3.11.0")
    with pytest.raises(JobError, match=r"expected aiobotocore 3\.10\.\*, found 3\.11\.0.*pip install"):
        s3_retries.retrying_session()


def test_a_filesystem_that_went_to_another_process_waits_as_well(store: FaultyS3, place: Location):
    (place / "a").write_bytes(b"one")
    filesystem, path = (place / "a").open_filesystem()
    sent = pickle.dumps(filesystem)
    PatientS3.clear_instance_cache()
    store.faults[:] = ["fail", "drop"]
    assert pickle.loads(sent).cat_file(path, max_concurrency=1) == b"one"


def test_a_process_that_was_forked_leaves_to_s3fs_what_would_hang(store: FaultyS3, place: Location):
    (place / "a").write_bytes(b"one")
    filesystem, path = (place / "a").open_filesystem()
    assert read_versions(filesystem, [path], [""]) == [b"one"]
    pid = os.fork()
    if not pid:
        try:
            PatientS3.clear_instance_cache()
            os._exit(0 if open_filesystem(place.uri)[0].bucket(path.split("/")[0]).get("deep/a") == b"one" else 1)
        finally:
            os._exit(2)
    for _ in range(300):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pytest.fail("it hangs")
    assert status == 0


def test_an_archived_object_costs_its_own_row_and_says_where_it_is(place: Location, s3: Any):
    bucket, prefix = place.uri.removeprefix("s3://").split("/", 1)
    for name, kind in (("a", "STANDARD"), ("b", "DEEP_ARCHIVE"), ("c", "STANDARD")):
        s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}.jsonl", Body=b'{"n": 1}\n', StorageClass=kind)
        s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}.txt", Body=b"text", StorageClass=kind)
    for source, lost in ((Jsonl(path=place.uri), "b.jsonl"), (Text(path=place.uri), "b.txt")):
        units = source.units(list_inputs(source, "all"))
        PatientS3.clear_instance_cache()  # as in a worker, whose first answer this is
        found = read_all(source, units)
        assert (len(found.good), found.types) == (2, {lost: "SourceArchived"})
        assert "storage class DEEP_ARCHIVE" in found.bad[lost]
    with pytest.raises(AccessDenied, match="storage class DEEP_ARCHIVE"):
        (place / "b.txt").read_bytes()


def test_anonymous_requests_are_unsigned_and_others_are_signed(store: FaultyS3, place: Location, s3: Any):
    write_deltalake(f"{place}/delta", pa.table({"n": [1]}), storage_options=storage_options())
    lance.write_dataset(pa.table({"n": [1]}), f"{place}/table.lance", storage_options=storage_options())
    (place / "texts/a.txt").write_bytes(b"text")
    bucket = place.uri.split("/")[2]
    for found in s3.list_objects_v2(Bucket=bucket)["Contents"]:
        s3.put_object_acl(Bucket=bucket, Key=found["Key"], ACL="public-read")
    kinds = {Text: "texts", Delta: "delta", Lance: "table.lance"}
    for anonymous in (True, False):
        for kind, name in kinds.items():
            store.signatures.clear()
            assert len(read_all(kind(path=f"{place}/{name}", anonymous=anonymous)).good) == 1
            assert {bool(signature) for signature in store.signatures} == {not anonymous}, kind


def test_a_store_on_this_machine_is_asked_without_the_proxy(
    store: FaultyS3, place: Location, monkeypatch: pytest.MonkeyPatch
):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "elsewhere")
    PatientS3.clear_instance_cache()
    (place / "a.txt").write_bytes(b"text")
    assert read_all(Text(path=place.uri)).column("text") == ["text"]
    lance.write_dataset(pa.table({"n": [1]}), f"{place}/table.lance", storage_options=storage_options())
    assert read_all(Lance(path=f"{place}/table.lance")).column("n") == [1]


def test_no_permission_is_told_at_once(store: FaultyS3, place: Location):
    store.always = "forbid"
    for call, verb in (
        (lambda: (place / "a").write_bytes(b"one"), "write"),
        (lambda: (place / "a").create(b"one"), "write"),
        ((place / "a").read_bytes, "read"),
        (lambda: (place / "a").read_tail(2), "read"),
        ((place / "a").open, "read"),
        (place.names, "list"),
        ((place / "a").remove, "remove"),
    ):
        store.seen.clear()
        with pytest.raises(AccessDenied, match=rf"no permission to {verb} {place}.*Nothing was published"):
            call()
        assert len(store.seen) == len(set(store.seen)), "asked again"


def test_of_several_files_one_that_may_not_be_read_is_told_and_one_that_is_not_there_is_none(
    store: FaultyS3, place: Location
):
    (place / "a").write_bytes(b"1")
    (place / "b").write_bytes(b"2")
    store.seen.clear()
    assert place.read_each(["a", "gone", "b"]) == {"a": b"1", "b": b"2"}
    assert sorted(store.seen) == [f"GET /{place.template.removeprefix('s3://')}/{name}" for name in ("a", "b", "gone")]
    store.faults = ["forbid"]
    with pytest.raises(AccessDenied, match="no permission to read"):
        place.read_each(["a", "b"])
    store.faults = ["drop", "throttle"]
    assert place.read_each(["a", "b"]) == {"a": b"1", "b": b"2"}


def test_a_source_that_may_not_be_listed_fails_at_once_and_a_single_file_costs_its_row(
    store: FaultyS3, place: Location
):
    for name in "abc":
        (place / f"{name}.png").write_bytes(name.encode())
    source = Images(path=place.uri)
    units = source.units(list_inputs(source, "all"))
    store.always_for["b.png"] = "forbid"
    found = read_all(source, units)
    assert (len(found.good), set(found.types.values())) == (2, {"PermissionError"})
    store.always_for.clear()
    store.always = "forbid"
    started = time.monotonic()
    with pytest.raises(InputError, match=f"source.path: no permission to list {place}: Access Denied"):
        list_inputs(source, "all")
    store.always = "fail"
    with pytest.raises(ServiceUnavailable, match=r"ListObjectsV2 on .* in [45] s"):
        list_inputs(source, "all")
    assert 4 < time.monotonic() - started < 60


@pytest.mark.slow
def test_a_server_that_is_killed_and_one_that_freezes_cost_only_time(s3: Any, monkeypatch: pytest.MonkeyPatch):
    """With a server of its own, which keeps nothing: the bucket is made anew."""
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "60")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    PatientS3.clear_instance_cache()
    servers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    try:
        later = threading.Timer(3, start)
        later.start()
        filesystem, _ = open_filesystem("s3://bucket")
        filesystem.mkdir("bucket")  # while nobody listens
        Location("s3://bucket/a").write_bytes(b"one")
        servers[0].send_signal(signal.SIGSTOP)
        later = threading.Timer(17, servers[0].send_signal, [signal.SIGCONT])  # a request waits 15 s for its answer
        later.start()
        assert Location("s3://bucket/a").read_bytes() == b"one"
        for call in (
            lambda: read_versions(filesystem, ["bucket/a"], [""]),
            lambda: list(Location("s3://bucket").files()),
        ):
            later.join()
            servers[0].send_signal(signal.SIGSTOP)
            later = threading.Timer(17, servers[0].send_signal, [signal.SIGCONT])
            later.start()
            started = time.monotonic()
            assert len(call()) == 1
            assert time.monotonic() - started > 15
    finally:
        later.join()
        for server in servers:
            server.kill()
            server.wait()
        PatientS3.clear_instance_cache()
