"""Make and check the data of try.py in the worker's container, which has the libraries and the store.

    make DAY COPIES...   copy the demo's clean day to further days: `make 2026-10-01 1 2026-10-10 15`
    poison DAY, cure DAY break a day, so that its checks fail, and repair it
    parts DAY COUNT      wait until a run has staged this number of parts
    rows DAY             read every row of a day, and compare it with the images

Each prints a JSON document. Images are copies, so their predictions must be those of the clean day.
"""

import json
import os
import sys
import time
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

BUCKET = os.environ["OVERNIGHT_BUCKET"]
CLEAN = f"{BUCKET}/digits/date=2026-11-17"
SINK = f"{BUCKET}/predictions/digits"
AT_ONCE = 500
store = fsspec.filesystem("s3", use_listings_cache=False)


def day_folder(day: str) -> str:
    return f"{BUCKET}/digits/date={day}"


def clean_images() -> dict[str, bytes]:
    """Return the PNG files of the clean day, by their path below the day."""
    return {path[len(CLEAN) + 1 :]: content for path, content in store.cat(store.find(CLEAN)).items()}


def make(*days_and_copies: str) -> dict[str, int]:
    images = clean_images()
    made = {}
    for day, copies in zip(days_and_copies[::2], days_and_copies[1::2], strict=True):
        files = {
            f"{day_folder(day)}/{name.replace('/', f'/copy{number:03d}-')}": content
            for number in range(int(copies))
            for name, content in images.items()
        }
        items = list(files.items())
        for begin in range(0, len(items), AT_ONCE):
            store.pipe(dict(items[begin : begin + AT_ONCE]))
        made[day] = len(files)
    return made


def poison(day: str) -> dict[str, int]:
    paths = store.find(day_folder(day))
    store.pipe(dict.fromkeys(paths, b"no image"))
    return {day: len(paths)}


def cure(day: str) -> dict[str, int]:
    return make(day, "1")


def parts(day: str, count: str) -> dict[str, int]:
    deadline = time.monotonic() + 240
    while (found := len(staged(day))) < int(count):
        if time.monotonic() > deadline:
            sys.exit(f"expected {count} staged parts within 240 s, found {found}")
        time.sleep(0.2)
    return {"parts": found}


def staged(day: str) -> list[str]:
    return [path for path in store.find(f"{SINK}/_overnight/date={day}/generations") if path.endswith(".part")]


def rows(day: str) -> dict[str, Any]:
    """Return figures of a day's receipt. Raise `AssertionError` if a row is missing, doubled or changed."""
    receipt = json.loads(store.cat(f"{SINK}/_overnight/date={day}/receipt.json"))
    table = read(receipt["files"])
    listed = {path for path in store.find(f"{SINK}/date={day}") if path.endswith(".parquet")}
    assert listed == {f"{SINK}/{file}" for file in receipt["files"]}, "expected only the receipt's files, found others"
    found = sorted(table["row_id"].to_pylist())
    images = sorted(path[len(day_folder(day)) + 1 :] for path in store.find(day_folder(day)))
    assert found == images, f"expected {len(images)} rows, found {len(found)} with {len(set(found))} row ids"
    assert receipt["rows_in"] == receipt["rows_out"] == len(images), receipt
    known = predictions(CLEAN.rpartition("=")[2])
    wrong = [name for name, label in labels(table).items() if known[original(name)] != label]
    assert not wrong, f"{len(wrong)} predictions differ from those of the same image, for example {wrong[0]}"
    names = ("generation", "seconds", "rows_resumed", "finished_at", "rows_out")
    return {name: receipt[name] for name in names}


def predictions(day: str) -> dict[str, str]:
    return labels(read(json.loads(store.cat(f"{SINK}/_overnight/date={day}/receipt.json"))["files"]))


def read(files: list[str]) -> pa.Table:
    return pa.concat_tables(pq.read_table(f"{SINK}/{file}", filesystem=store, partitioning=None) for file in files)


def labels(table: pa.Table) -> dict[str, str]:
    return dict(zip(table["row_id"].to_pylist(), table["predicted_label"].to_pylist(), strict=True))


def original(name: str) -> str:
    """Return the name of a copy's original: `3/0123.png` for `3/copy007-0123.png`."""
    folder, _, file = name.partition("/")
    return f"{folder}/{file.rpartition('-')[2]}"


VERBS = {"make": make, "poison": poison, "cure": cure, "parts": parts, "rows": rows}
print(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])))
