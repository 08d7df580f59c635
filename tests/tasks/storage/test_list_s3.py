"""Listing S3 by ranges, against a real server, held to one request after another by another client."""

import os
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from overnight.tasks.errors import ServiceUnavailable
from overnight.tasks.storage import list_s3, s3_bucket
from overnight.tasks.storage.file_info import Entry
from overnight.tasks.storage.list_s3 import s3_entries
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.s3 import PatientS3
from tests.tasks.faulty_s3 import faulty_s3

NAMES = ["a", "a.b", "a b", "a%20b", "a+b", "a-b", "a0", "ab", "b", "ü", "~", "[x]", "é", "\U0001f600"]


def bucket_of(s3: Any, keys: set[str]) -> str:
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=content(key)), keys))
    return bucket


def content(key: str) -> bytes:
    return b"" if key.endswith("/") else key.encode()


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
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", page)
    monkeypatch.setattr(list_s3, "KEYS_A_RANGE", 20)
    monkeypatch.setattr(list_s3, "FEW", few)
    monkeypatch.setattr(list_s3, "DEEPEST", deepest)
    bucket = bucket_of(s3, nested(page + few, 150))
    for prefix in ("in", "in/a", "in/a/b", ""):
        root = f"{bucket}/{prefix}".rstrip("/")
        expected = sorted(one_by_one(s3, bucket, f"{prefix}/" if prefix else ""))
        found = s3_entries(PatientS3(use_listings_cache=False), root)
        assert [tuple(entry)[:4] for entry in found] == expected


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
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", 5)
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
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", 15)  # one for all folders, two for each
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


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_an_answer_that_ends_early_is_not_taken_for_a_whole_one(s3: Any, monkeypatch: pytest.MonkeyPatch, keep: float):
    bucket = bucket_of(s3, {f"in/{number}" for number in range(50)})
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "0.5")
    with faulty_s3(os.environ["AWS_ENDPOINT_URL"]) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        PatientS3.clear_instance_cache()
        place = Location(f"s3://{bucket}/in")
        store.faults = ["cut"]
        assert len(list(place.files())) == 50
        store.rewrite = lambda body: body[: int(len(body) * keep)]
        with pytest.raises(ServiceUnavailable, match="the storage did not recover"):
            list(place.files())
        PatientS3.clear_instance_cache()


@pytest.mark.parametrize("page", [1000, 2])
@pytest.mark.parametrize("odd", ["in/a//b", "in/a/../b", "in/./b", "in/a\tb", "in//", "in/b//"])
def test_keys_that_obstore_has_no_path_for_are_listed_with_the_others(
    s3: Any, monkeypatch: pytest.MonkeyPatch, odd: str, page: int
):
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", page)
    keys = {"in/", "in/a", "in/a.b", "in/c", "in/c/d", "in/z", odd}
    bucket = bucket_of(s3, keys)
    assert keys_below(bucket, "in") == sorted(keys)


@pytest.mark.parametrize("page", [1000, 2])
def test_a_folder_that_stands_for_itself_is_told_from_an_empty_file(
    s3: Any, monkeypatch: pytest.MonkeyPatch, page: int
):
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", page)
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    sizes = {"in/": 0, "in/a": 0, "in/a-": 1, "in/a.b/c": 0, "in/a/": 0, "in/a/b": 2, "in/c/": 0, "in/d": 0, "in/e": 3,
             "in/e/": 0, "in/f/": 0, "in/f/g/": 0}  # fmt: skip
    for key, size in sizes.items():
        s3.put_object(Bucket=bucket, Key=key, Body=b"x" * size)
    assert keys_below(bucket, "in") == sorted(sizes)
    found = {file.path: file.size for file in Location(f"s3://{bucket}/in").files()}
    assert found == {key[3:]: size for key, size in sizes.items() if not key.endswith("/")}


def test_a_folder_that_stands_for_itself_and_is_not_empty_is_told_from_a_file(s3: Any):
    bucket, keys = bucket_of(s3, {"in/a.b", "in/c"}), ["in/a.b", "in/a/", "in/b/", "in/b/c", "in/c"]
    for key in ("in/a/", "in/b/", "in/b/c"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert keys_below(bucket, "in") == keys


@pytest.mark.parametrize("keys", [{"/a", "/b/c"}, {"/a", "a", "-", "b/c"}, {"//a", "b"}])
def test_a_slash_at_the_beginning_of_a_key_is_part_of_it(s3: Any, keys: set[str]):
    assert keys_below(bucket_of(s3, keys), "") == sorted(keys)


def test_an_answer_of_less_than_a_page_is_not_the_last_one_for_that(s3: Any, monkeypatch: pytest.MonkeyPatch):
    keys = {f"in/{number:04d}" for number in range(30)}
    bucket = bucket_of(s3, keys)
    asked: Any = PatientS3.call_s3

    def less(self: PatientS3, *arguments: Any, **options: Any) -> Any:
        return asked(self, *arguments, **{**options, "MaxKeys": 7})

    monkeypatch.setattr(PatientS3, "call_s3", less)
    monkeypatch.setattr(s3_bucket.Bucket, "_may_ask", lambda _: False)
    assert keys_below(bucket, "in") == sorted(keys)


def keys_below(bucket: str, prefix: str) -> list[str]:
    root = f"{bucket}/{prefix}".rstrip("/")
    return [entry.name[len(bucket) + 1 :] for entry in s3_entries(PatientS3(use_listings_cache=False), root)]


def test_objects_are_as_botocore_would_give_them(s3: Any):
    bucket = bucket_of(s3, {f"{name}/x<&>'{name}" for name in NAMES} | {"a/"})
    found = list(s3_entries(PatientS3(use_listings_cache=False), bucket))
    assert found == [Entry(*row) for row in one_by_one(s3, bucket, "")]
    bucket = s3_bucket.Bucket(PatientS3(use_listings_cache=False), bucket)
    assert [entry for answer in bucket.answers("") for entry in bucket.entries(answer)] == found
