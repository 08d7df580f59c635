"""Files that are a row each: names on S3, several storages, and the encodings of texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.sources.uris import Uris
from tests.contracts.sources.adapters.text import NO_TEXTS
from tests.contracts.sources.reading import Read, read_all

NAMES = [
    "a b", "a#1", "a%20b", "a?b", "a::b", "a[x]", "[ab]", "a*b", "ünïcödé-図", "{partition}", "${HOME}", "~root",
    "a\\b", "a+b&c=d;e", "http:a", "C:a", "'q\"", "-rf", "a .", "x" * 200, "a,b",
]  # fmt: skip


HOSTILE = {f"{name}.txt": (content, 0, words) for name, (content, words) in NO_TEXTS.items()} | {
    "utf-8-mark.txt": (b"\xef\xbb\xbf" + "grüße".encode("latin-1"), 0, "expected text in utf-8"),
    "declared-latin-1.xml": ('<?xml encoding="latin-1"?>ü'.encode(), 1, ""),
}


def test_files_of_any_name_are_read_from_s3_and_their_uris_open_them(s3: Any, bucket: str) -> None:
    files = {f"in/{name}/{name}.png": name.encode() for name in NAMES}
    for name, content in files.items():
        s3.put_object(Bucket=bucket, Key=name, Body=content)
    s3.put_object(Bucket=bucket, Key="in/folder/", Body=b"")
    s3.put_object(Bucket=bucket, Key="input-of-another-job/a.png", Body=b"")
    found = read_all(Images(path=f"s3://{bucket}/in"))
    assert {f"in/{name}": row["image"] for name, row in found.good.items()} == files
    assert {row["uri"] for row in found.good.values()} == {f"s3://{bucket}/{name}" for name in files}


def test_files_of_one_list_may_be_on_several_storages(tmp_path: Path, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="in/cat/b.png", Body=b"from s3")
    for name in ("dog/a.png", "dog/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    paths = [f"s3://{bucket}/in/", f"{tmp_path}/*/[ac].png"]
    found = read_all(Images(path=paths, label_from="parent"))
    assert {name: (row["image"], row["label"]) for name, row in found.good.items()} == {
        f"{tmp_path}/dog/a.png": (b"dog/a.png", "dog"),
        f"{tmp_path}/dog/c.png": (b"dog/c.png", "dog"),
        f"s3://{bucket}/in/cat/b.png": (b"from s3", "cat"),
    }


def test_what_lies_at_a_uri_is_held_to_the_bound_once_it_is_fetched(read: Callable[..., Read], tmp_path: Path) -> None:
    (tmp_path / "two.bin").write_bytes(b"xx")
    (tmp_path / "three.bin").write_bytes(b"xxx")
    lines = f"uri\n{tmp_path}/two.bin\n{tmp_path}/three.bin\n".encode()
    found = read(Uris, {"list.csv": lines}, content="bytes", max_file_bytes=2)
    assert (list(found.good), list(found.bad)) == (["list.csv#0"], ["list.csv#1"])


def test_a_file_that_is_no_text_in_an_encoding_of_the_job_s_own_is_quarantined_alone(read: Callable[..., Read]) -> None:
    found = read(Text, {"a.txt": "grüße".encode("utf-16"), "b.txt": b"\xff\xfea\0b"}, encoding="utf-16")
    assert found.column("text") == ["grüße"]
    assert "expected text in utf-16, found b'b' at byte 4: truncated data" in found.bad["b.txt"]
