"""Listing S3 by ranges, against a real server, held to one request after another by another client."""

import random
import threading
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from overnight.tasks.errors import ServiceUnavailable
from overnight.tasks.storage import list_s3, s3_bucket
from overnight.tasks.storage.file_info import Entry
from overnight.tasks.storage.list_s3 import s3_entries
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.s3 import PatientS3
from tests.tasks.faulty_s3 import FaultyS3

NAMES = ["a", "a.b", "a b", "a%20b", "a+b", "a-b", "a0", "ab", "b", "ü", "~", "[x]", "é", "\U0001f600", "x<&>'"]
WITHOUT_PATH = ["", ".", "..", "a\tb"]  # obstore has no path for keys with such a name


def bucket_of(s3: Any, keys: Iterable[str], empty: Iterable[str] = ()) -> str:
    """A bucket with these keys. Those that stand for folders are empty, and some others."""
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    contents = {key: b"" if key.endswith("/") or key in empty else key.encode() for key in keys}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=contents[key]), contents))
    return bucket


def nested(source: random.Random, count: int, names: list[str]) -> set[str]:
    """Keys up to five folders deep below in/, some of them folders by themselves, and others beside it."""
    found = {"in/", "in.b", "in0", "in/a/", "in/a", "in/a-", "io/a"} | ({"/a", "//a"} if "" in names else set())
    while len(found) < count:
        depth = source.choice([0, 1, 1, 2, 2, 5])
        path = "/".join(source.choice(names) for _ in range(depth + 1))
        found.add(f"in/{path}{source.choice(['', '', '/', '//a'])}")
    return found


def keys_below(bucket: str, prefix: str) -> list[str]:
    entries = s3_entries(PatientS3(use_listings_cache=False), f"{bucket}/{prefix}")
    return [entry.name[len(bucket) + 1 :] for entry in entries]


def one_by_one(s3: Any, bucket: str, prefix: str) -> list[tuple[str, int, str, float]]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    found = [info for page in pages for info in page.get("Contents", [])]
    return [(f"{bucket}/{i['Key']}", i["Size"], i["ETag"].strip('"'), i["LastModified"].timestamp()) for i in found]


@pytest.mark.parametrize(
    ("page", "few", "deepest", "names"),
    [
        (1000, 8, 3, NAMES),
        (7, 8, 3, NAMES),
        (1, 100, 3, NAMES),
        (1, 0, 0, NAMES),
        (7, 8, 3, NAMES + WITHOUT_PATH),
        (1, 8, 3, NAMES + WITHOUT_PATH),
    ],
)
def test_ranges_side_by_side_find_what_one_request_after_another_finds(
    s3: Any, monkeypatch: pytest.MonkeyPatch, page: int, few: int, deepest: int, names: list[str]
) -> None:
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", page)
    monkeypatch.setattr(list_s3, "KEYS_A_RANGE", 10)
    monkeypatch.setattr(list_s3, "FEW", few)
    monkeypatch.setattr(list_s3, "DEEPEST", deepest)
    source = random.Random(page + few)
    keys = nested(source, 80, names)
    bucket = bucket_of(s3, keys, source.sample(sorted(keys), 15))
    for prefix in ("in", "in/a", ""):
        root = f"{bucket}/{prefix}".rstrip("/")
        expected = sorted(one_by_one(s3, bucket, f"{prefix}/" if prefix else ""))
        assert [tuple(entry)[:4] for entry in s3_entries(PatientS3(use_listings_cache=False), root)] == expected


def test_objects_are_as_botocore_would_give_them(s3: Any) -> None:
    name = bucket_of(s3, [f"{name}/{name}" for name in NAMES])
    bucket = s3_bucket.Bucket(PatientS3(use_listings_cache=False), name)
    found = [entry for answer in bucket.answers("") for entry in bucket.entries(answer)]
    assert found == [Entry(*row) for row in one_by_one(s3, name, "")]


def test_a_folder_that_stands_for_itself_and_is_not_empty_is_told_from_a_file(s3: Any) -> None:
    bucket, keys = bucket_of(s3, {"in/a.b", "in/c"}), ["in/a.b", "in/a/", "in/b/", "in/b/c", "in/c"]
    for key in ("in/a/", "in/b/", "in/b/c"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert keys_below(bucket, "in") == keys


def test_few_objects_cost_one_request(s3: Any, store: FaultyS3) -> None:
    bucket = bucket_of(s3, {f"in/{number}/a" for number in range(20)})
    assert len(list(Location(f"s3://{bucket}/in").files())) == 20
    assert store.seen == [f"GET /{bucket}"]
    store.always = "forbid"
    with pytest.raises(PermissionError):
        list(Location(f"s3://{bucket}/in").files())


@pytest.mark.parametrize("taken", [1, 40])
def test_who_stops_taking_ends_the_listing(s3: Any, monkeypatch: pytest.MonkeyPatch, taken: int):
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", 5)
    monkeypatch.setattr(list_s3, "PAGES_AHEAD", 1)
    bucket = bucket_of(s3, {f"in/{number % 12}/{number}" for number in range(120)})
    files: Any = Location(f"s3://{bucket}/in").files()
    for _ in range(taken):
        next(files)
    files.close()
    for thread in threading.enumerate():
        if thread.name.startswith("listing"):
            thread.join(10)
            assert not thread.is_alive()


def test_an_error_in_the_midst_of_a_listing_is_raised_not_swallowed(
    s3: Any, store: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_bucket, "KEYS_A_PAGE", 15)  # one for all folders, two for each
    bucket = bucket_of(s3, {f"in/{number % 6:02d}/{number}" for number in range(100)})
    files = Location(f"s3://{bucket}/in").files()
    next(files)
    store.always = "forbid"
    with pytest.raises(PermissionError):
        list(files)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_an_answer_that_ends_early_is_not_taken_for_a_whole_one(
    s3: Any, store: FaultyS3, monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    bucket = bucket_of(s3, {f"in/{number}" for number in range(50)})
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "0.5")
    place = Location(f"s3://{bucket}/in")
    store.faults = ["cut"]
    assert len(list(place.files())) == 50
    store.rewrite = lambda body: body[: int(len(body) * keep)]
    with pytest.raises(ServiceUnavailable):
        list(place.files())


def test_an_answer_of_less_than_a_page_is_not_the_last_one_for_that(s3: Any, monkeypatch: pytest.MonkeyPatch):
    keys = {f"in/{number:04d}" for number in range(30)}
    bucket = bucket_of(s3, keys)
    asked: Any = PatientS3.call_s3

    def less(self: PatientS3, *arguments: Any, **options: Any) -> Any:
        return asked(self, *arguments, **{**options, "MaxKeys": 7})

    monkeypatch.setattr(PatientS3, "call_s3", less)
    monkeypatch.setattr(s3_bucket.Bucket, "is_served", lambda *_: False)
    assert keys_below(bucket, "in") == sorted(keys)
