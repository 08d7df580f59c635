"""Listing S3 by ranges, against a real server, held to one request after another by another client."""

import os
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tasks import s3_listing
from tasks.patient_s3 import PatientS3
from tasks.s3_listing import s3_entries
from tasks.storage import Location
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
    monkeypatch.setattr(s3_listing, "KEYS_A_PAGE", page)
    monkeypatch.setattr(s3_listing, "KEYS_A_RANGE", 20)
    monkeypatch.setattr(s3_listing, "FEW", few)
    monkeypatch.setattr(s3_listing, "DEEPEST", deepest)
    bucket = bucket_of(s3, nested(page + few, 150))
    for prefix in ("in", "in/a", "in/a/b", ""):
        root = f"{bucket}/{prefix}".rstrip("/")
        expected = sorted(one_by_one(s3, bucket, f"{prefix}/" if prefix else ""))
        # A folder that stands for itself opens no range: `files` leaves it out.
        assert files_only(s3_entries(PatientS3(use_listings_cache=False), root)) == files_only(expected)


def files_only(entries: Any) -> list[tuple[Any, ...]]:
    return [tuple(entry) for entry in entries if not entry[0].endswith("/")]


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
    monkeypatch.setattr(s3_listing, "KEYS_A_PAGE", 5)
    monkeypatch.setattr(s3_listing, "PAGES_AHEAD", 1)
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
    monkeypatch.setattr(s3_listing, "KEYS_A_PAGE", 15)  # one for all folders, two for each
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


def test_objects_are_as_botocore_would_give_them(s3: Any):
    bucket = bucket_of(s3, {f"{name}/x<&>'{name}" for name in NAMES} | {"a/"})
    plain = s3.list_objects_v2(Bucket=bucket, MaxKeys=20)
    found = PatientS3(use_listings_cache=False).call_s3("list_objects_v2", Bucket=bucket, MaxKeys=20)
    for name in ("Key", "Size", "ETag", "LastModified", "StorageClass"):
        assert [info[name] for info in found["Contents"]] == [info[name] for info in plain["Contents"]]
    assert {**found, "Contents": 0, "ResponseMetadata": 0} == {**plain, "Contents": 0, "ResponseMetadata": 0}
