"""Listing S3 by ranges, against a real server, held to one request after another by another client."""

import os
import random
import re
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.storage import list_s3, s3_list_parser
from overnight.tasks.storage.list_s3 import s3_entries
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.s3 import PatientS3
from tests.tasks.faulty_s3 import faulty_s3

NAMES = ["a", "a.b", "a b", "a%20b", "a+b", "a-b", "a0", "ab", "b", "ü", "~", "[x]", "é", "\U0001f600"]


def bucket_of(s3: Any, keys: set[str]) -> str:
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=key.encode()), keys))
    return bucket


def nested(seed: int, count: int) -> set[str]:
    """Keys up to five folders deep below in/, some of them folders by themselves, and others beside it."""
    source = random.Random(seed)
    found = {"in/", "in.b", "in0", "in/a/", "io/a"}
    while len(found) < count:
        depth = source.choice([0, 1, 1, 2, 2, 5])
        found.add(
            "in/" + "/".join(source.choice(NAMES) for _ in range(depth + 1)) + source.choice(["", "", "/", "//a"])
        )
    return found


def one_by_one(s3: Any, bucket: str, prefix: str) -> list[tuple[str, int, str, float]]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    found = [info for page in pages for info in page.get("Contents", [])]
    return [(f"{bucket}/{i['Key']}", i["Size"], i["ETag"].strip('"'), i["LastModified"].timestamp()) for i in found]


@pytest.mark.parametrize("page", [1000, 7, 1])
@pytest.mark.parametrize(("few", "deepest"), [(8, 3), (100, 3), (0, 0)])
def test_ranges_side_by_side_find_what_one_request_after_another_finds(
    s3: Any, monkeypatch: pytest.MonkeyPatch, page: int, few: int, deepest: int
):
    monkeypatch.setattr(list_s3, "KEYS_A_PAGE", page)
    monkeypatch.setattr(list_s3, "KEYS_A_RANGE", 20)
    monkeypatch.setattr(list_s3, "FEW", few)
    monkeypatch.setattr(list_s3, "DEEPEST", deepest)
    bucket = bucket_of(s3, nested(page + few, 150))
    for prefix in ("in", "in/a", "in/a/b", ""):
        root = f"{bucket}/{prefix}".rstrip("/")
        expected = sorted(one_by_one(s3, bucket, f"{prefix}/" if prefix else ""))
        # A folder that stands for itself opens no range: `files` leaves it out.
        assert files_only(s3_entries(PatientS3(use_listings_cache=False), root)) == files_only(expected)


def files_only(entries: Any) -> list[tuple[Any, ...]]:
    return [tuple(entry)[:4] for entry in entries if not entry[0].endswith("/")]


def test_more_objects_than_one_answer_holds_are_all_found_in_order(s3: Any):
    keys = {f"in/{number % 13:02d}/{number:05d}.csv" for number in range(1100)}
    bucket = bucket_of(s3, keys)
    assert [f"in/{file.path}" for file in Location(f"s3://{bucket}/in").files((".csv",))] == sorted(keys)


def test_few_objects_cost_one_request(s3: Any, monkeypatch: pytest.MonkeyPatch):
    bucket = bucket_of(s3, {f"in/{number}/a" for number in range(20)})
    with faulty_s3(os.environ["AWS_ENDPOINT_URL"]) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        PatientS3.clear_instance_cache()
        assert len(list(Location(f"s3://{bucket}/in").files())) == 20
        assert store.seen == [f"GET /{bucket}"]
        store.always = "forbid"
        with pytest.raises(PermissionError):
            list(Location(f"s3://{bucket}/in").files())
        PatientS3.clear_instance_cache()


@pytest.mark.parametrize("taken", [1, 40])
def test_who_stops_taking_ends_the_listing(s3: Any, monkeypatch: pytest.MonkeyPatch, taken: int):
    monkeypatch.setattr(list_s3, "KEYS_A_PAGE", 5)
    monkeypatch.setattr(list_s3, "PAGES_AHEAD", 1)
    bucket = bucket_of(s3, {f"in/{number % 12}/{number}" for number in range(300)})
    files: Any = Location(f"s3://{bucket}/in").files()
    for _ in range(taken):
        next(files)
    files.close()
    for thread in threading.enumerate():
        if thread.name.startswith("listing"):
            thread.join(10)
            assert not thread.is_alive()


def test_an_error_in_the_midst_of_a_listing_is_raised_not_swallowed(s3: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(list_s3, "KEYS_A_PAGE", 15)  # one for all folders, two for each
    bucket = bucket_of(s3, {f"in/{number % 12:02d}/{number}" for number in range(200)})
    with faulty_s3(os.environ["AWS_ENDPOINT_URL"]) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        PatientS3.clear_instance_cache()
        files = Location(f"s3://{bucket}/in").files()
        next(files)
        store.always = "forbid"
        with pytest.raises(PermissionError):
            list(files)
        PatientS3.clear_instance_cache()


def recount(change: int) -> Callable[[bytes], bytes]:
    """What changes the number of keys that a page of a listing names, and leaves the page as it is."""

    def changed(body: bytes) -> bytes:
        return re.sub(rb"<KeyCount>(\d+)<", lambda found: b"<KeyCount>%d<" % (int(found[1]) + change), body)

    return changed


@pytest.mark.parametrize("change", [1, -1])
@pytest.mark.parametrize("take", ["files", "names", "walk"])
def test_a_page_with_another_number_of_keys_than_the_store_counts_is_refused(
    s3: Any, monkeypatch: pytest.MonkeyPatch, change: int, take: str
):
    bucket = bucket_of(s3, {f"in/{number}" for number in range(5)})
    with faulty_s3(os.environ["AWS_ENDPOINT_URL"]) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        PatientS3.clear_instance_cache()
        place = Location(f"s3://{bucket}/in")
        take_all = {
            "files": lambda: list(place.files()),
            "names": place.names,
            "walk": lambda: PatientS3(use_listings_cache=False).find(f"{bucket}/in"),
        }[take]
        assert len(take_all()) == 5
        store.rewrite = recount(change)
        with pytest.raises(InputError, match=rf"expected {5 + change} keys on a page of the listing.*found 5 objects"):
            take_all()
        PatientS3.clear_instance_cache()


def test_objects_that_are_lost_between_the_answer_and_its_parsing_are_missed(s3: Any, monkeypatch: pytest.MonkeyPatch):
    bucket = bucket_of(s3, {f"in/{number}" for number in range(5)})
    monkeypatch.setattr(s3_list_parser, "FIELDS", ())
    monkeypatch.setattr(s3_list_parser, "_fields", lambda *_: {})

    def lost(customized_response_dict: dict[str, Any], **_: Any) -> None:
        customized_response_dict.pop("Contents", None)

    filesystem = PatientS3(use_listings_cache=False, skip_instance_cache=True)
    filesystem.connect()
    filesystem.s3.meta.events.register_last("before-parse.*.ListObjectsV2", lost)
    with pytest.raises(InputError, match=r"expected 5 keys on a page of the listing.*found 0 objects"):
        list(s3_entries(filesystem, f"{bucket}/in"))


def test_objects_are_as_botocore_would_give_them(s3: Any):
    bucket = bucket_of(s3, {f"{name}/x<&>'{name}" for name in NAMES} | {"a/"})
    plain = s3.list_objects_v2(Bucket=bucket, MaxKeys=20)
    found = PatientS3(use_listings_cache=False).call_s3("list_objects_v2", Bucket=bucket, MaxKeys=20)
    for name in ("Key", "Size", "ETag", "LastModified", "StorageClass"):
        assert [info[name] for info in found["Contents"]] == [info[name] for info in plain["Contents"]]
    assert {**found, "Contents": 0, "ResponseMetadata": 0} == {**plain, "Contents": 0, "ResponseMetadata": 0}
