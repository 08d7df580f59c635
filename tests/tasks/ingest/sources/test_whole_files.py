"""Files that are a row each: names on S3, several storages, links, and the encodings of texts."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.sources.uris import Uris
from tests.contracts.sources.reading import Read, read_all

NAMES = [
    "a b", "a#1", "a%20b", "a?b", "a::b", "a[x]", "[ab]", "a*b", "ünïcödé-図", "{partition}", "${HOME}", "~root",
    "a\\b", "a+b&c=d;e", "http:a", "C:a", "'q\"", "-rf", "a .", "x" * 200, "a,b",
]  # fmt: skip


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    return name


def test_files_of_any_name_are_read_from_s3_and_their_uris_open_them(s3: Any, bucket: str) -> None:
    files = {f"in/{name}/{name}.png": name.encode() for name in NAMES}
    for name, content in files.items():
        s3.put_object(Bucket=bucket, Key=name, Body=content)
    s3.put_object(Bucket=bucket, Key="in/folder/", Body=b"")
    s3.put_object(Bucket=bucket, Key="input-of-another-job/a.png", Body=b"")
    found = read_all(Images(path=f"s3://{bucket}/in"))
    assert {f"in/{name}": row["image"] for name, row in found.good.items()} == files
    assert {row["uri"] for row in found.good.values()} == {f"s3://{bucket}/{name}" for name in files}


def test_an_object_that_is_gone_with_its_folder_is_quarantined(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a.png", Body=b"x")
    source = Images(path=f"s3://{bucket}/")
    units = source.units(list_inputs(source, "all"))
    s3.delete_object(Bucket=bucket, Key="a.png")
    assert list(read_all(source, units).bad) == ["a.png"]


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


def test_links_to_nowhere_and_to_folders_are_passed_over(read: Callable[..., Read], tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/broken-link.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "source/folder.png").symlink_to(tmp_path / "source")
    found = read(Images, {"a.png": b"x"})
    assert (list(found.good), found.bad) == (["a.png"], {})


def test_what_lies_at_a_uri_is_held_to_the_bound_once_it_is_fetched(read: Callable[..., Read], tmp_path: Path) -> None:
    (tmp_path / "two.bin").write_bytes(b"xx")
    (tmp_path / "three.bin").write_bytes(b"xxx")
    lines = f"uri\n{tmp_path}/two.bin\n{tmp_path}/three.bin\n".encode()
    found = read(Uris, {"list.csv": lines}, content="bytes", max_file_bytes=2)
    assert (list(found.good), list(found.bad)) == (["list.csv#0"], ["list.csv#1"])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252", "shift_jis"])
def test_texts_come_in_the_encoding_that_is_named(read: Callable[..., Read], encoding: str) -> None:
    text = "日本" if encoding == "shift_jis" else "grüße"
    found = read(Text, {"a.txt": text.encode(encoding)}, encoding=encoding)
    assert found.column("text") == [text]


def test_a_file_that_is_no_text_in_an_encoding_of_the_job_s_own_is_quarantined_alone(read: Callable[..., Read]) -> None:
    found = read(Text, {"a.txt": "grüße".encode("utf-16"), "b.txt": b"\xff\xfea\0b"}, encoding="utf-16")
    assert found.column("text") == ["grüße"]
    assert "expected text in utf-16, found b'b' at byte 4: truncated data" in found.bad["b.txt"]


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "rot13", "hex", "zlib", "idna", "unicode_escape", "a\0"])
def test_an_encoding_of_no_text_is_refused_with_those_that_are_meant(encoding: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Text(path="x", encoding=encoding)
    told = str(refused.value)
    assert f"found {encoding!r}" in told
    assert all(name in told for name in ("cp1252", "gb18030", "latin_1", "shift_jis", "utf_16", "utf_8", "utf_8_sig"))
    assert "base64_codec" not in told


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf-8-sig", "latin-1", "koi8-r", "cp1252", "big5"])
def test_character_sets_are_encodings_by_any_of_their_names(encoding: str) -> None:
    assert Text(path="x", encoding=encoding).encoding == encoding
