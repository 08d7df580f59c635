"""WebDataset shards as its own writers make them, and as disks and programs break them."""

import gzip
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tasks.ingest import webdataset
from tasks.ingest.listing import list_inputs
from tasks.ingest.webdataset import WebDataset
from tests.tasks.ingest.conftest import Read, read_all

Reader = Callable[..., Read]


def tar(files: Mapping[str, bytes] | list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items() if isinstance(files, Mapping) else files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def pairs(count: int, size: int = 600) -> dict[str, bytes]:
    """`count` samples of a file of `size` bytes and a number."""
    files = {}
    for n in range(count):
        files[f"{n:04d}.jpg"] = b"%d" % n * (size // len(b"%d" % n))
        files[f"{n:04d}.cls"] = b"%d\n" % n
    return files


def test_files_of_one_name_are_a_row_with_a_column_an_extension(read: Reader) -> None:
    files = {
        "./a/001.jpg": b"\xff\xd8",
        "./a/001.JSON": b'{"x": 1}',
        "./a/001.cls": b"7\n",
        "./a/001.seg.png": b"mask",
        "a.b/002.jpg": b"",
        "a.b/002.txt": "grüße".encode(),
        "readme": b"belongs to no sample",
        "__meta__.json": b"neither",
    }
    found = read(WebDataset, {"deep/s-0.tar": tar(files)})
    rows = {name: {k: v for k, v in row.items() if k not in ("row_id", "uri")} for name, row in found.good.items()}
    nothing = {"json": None, "cls": None, "seg.png": None, "txt": None}
    assert rows == {
        "deep/s-0.tar#0": {**nothing, "key": "a/001", "jpg": b"\xff\xd8", "json": '{"x": 1}', "cls": 7}
        | {"seg.png": b"mask"},
        "deep/s-0.tar#1": {**nothing, "key": "a.b/002", "jpg": b"", "txt": "grüße"},
    }


@pytest.mark.parametrize("name", ["s.tar.gz", "s.tgz", "s.tar"])
def test_shards_may_be_packed_whatever_their_names(read: Reader, name: str) -> None:
    found = read(WebDataset, {name: gzip.compress(tar(pairs(5)))})
    assert found.column("cls") == [0, 1, 2, 3, 4]


def test_columns_are_named_and_take_the_first_extension_that_is_there(read: Reader) -> None:
    files = {"0.png": b"a", "0.txt": b"x", "1.jpg": b"b", "1.png": b"c", "2.txt": b"no image"}
    found = read(WebDataset, {"s.tar": tar(files)}, columns={"image": "jpg;png"})
    assert [(row["key"], row["image"]) for row in found.good.values()] == [("0", b"a"), ("1", b"b")]
    assert found.bad == {"s.tar#2": "sample 2: expected a file that ends in jpg;png, found txt"}


def test_an_extension_that_is_first_met_late_is_a_column_of_the_rows_from_there(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdataset, "SAMPLE_ROWS", 1)
    monkeypatch.setattr(webdataset, "ROWS_AT_ONCE", 2)
    found = read(WebDataset, {"s.tar": tar({"0.a": b"", "1.a": b"", "2.a": b"", "2.b": b"x"})})
    assert [row.get("b") for row in found.good.values()] == [None, None, b"x"]


def test_samples_that_cannot_be_read_are_quarantined_alone(read: Reader) -> None:
    files = [("0.txt", b"well"), ("1.txt", b"\xff"), ("2.cls", b"two")]
    files += [("3.txt", b"a"), ("3.txt", b"b"), ("4.cls", b"4")]
    found = read(WebDataset, {"s.tar": tar(files)})
    assert list(found.good) == ["s.tar#0", "s.tar#4"]
    assert found.bad == {
        "s.tar#1": "1.txt: expected text in UTF-8, found b'\\xff'",
        "s.tar#2": "2.cls: expected a whole number, found b'two'",
        "s.tar#3": "sample 3: found two files named 3.txt",
    }


WHOLE = tar(pairs(20))  # a sample is 512 + 1024 + 512 + 512 bytes


@pytest.mark.parametrize("cut", [512, 600, 1536, 2560, 2560 * 7, 2560 * 7 + 100, 2560 * 7 + 512, 2560 * 8 - 512])
def test_a_shard_that_is_cut_off_keeps_its_whole_samples_and_loses_one_row_for_the_rest(read: Reader, cut: int) -> None:
    found = read(WebDataset, {"s.tar": WHOLE[:cut], "t.tar": WHOLE})
    whole = (cut - 512) // 2560  # only the header of the next file tells that a sample is whole
    of_first = [name for name in found.good if name.startswith("s.tar")]
    assert of_first == [f"s.tar#{n}" for n in range(whole)]
    assert list(found.bad) == [f"s.tar#{whole}" if whole else "s.tar"]
    assert found.counts == {"s.tar": whole + 1, "t.tar": 20}


def test_a_packed_shard_that_is_cut_off_keeps_its_whole_samples(read: Reader) -> None:
    packed = gzip.compress(WHOLE, 1)
    found = read(WebDataset, {"s.tar.gz": packed[: len(packed) * 2 // 3]})
    assert 5 < len(found.good) < 20
    assert len(found.bad) == 1


def test_a_header_that_was_overwritten_ends_the_shard_and_not_in_silence(read: Reader) -> None:
    broken = bytearray(WHOLE)
    broken[2560 * 5 : 2560 * 5 + 512] = b"\xab" * 512
    found = read(WebDataset, {"s.tar": bytes(broken)})
    assert (len(found.good), list(found.bad)) == (4, ["s.tar#4"])
    assert "expected the header of a file in a tar archive: invalid header" in found.bad["s.tar#4"]


@pytest.mark.parametrize("content", [b"", b"no tar", b"\xab" * 2000, gzip.compress(b"no tar"), b"\x1f\x8bno gzip"])
def test_a_file_that_is_no_tar_is_one_bad_row(read: Reader, content: bytes) -> None:
    found = read(WebDataset, {"a.tar": content, "b.tar": WHOLE})
    assert (list(found.bad), len(found.good)) == (["a.tar"], 20)


def test_an_archive_without_samples_has_no_rows(read: Reader) -> None:
    assert read(WebDataset, {"a.tar": tar({}), "b.tar": tar({"readme": b""})}).counts == {"a.tar": 0, "b.tar": 0}


def test_links_and_folders_in_a_shard_are_no_files(read: Reader, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind in (("0.txt", tarfile.SYMTYPE), ("1.d", tarfile.DIRTYPE), ("2.txt", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert read(WebDataset, {"a.tar": buffer.getvalue()}).counts == {"a.tar": 0}


def test_a_shard_replaced_since_it_was_listed_gives_none_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "s.tar").write_bytes(WHOLE)
    source = WebDataset(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    (tmp_path / "s.tar").write_bytes(tar(pairs(3)))
    found = read_all(source, units)
    assert (found.good, found.types) == ({}, {"s.tar": "SourceChanged"})
