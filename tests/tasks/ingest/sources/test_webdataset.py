"""WebDataset shards as its own writers make them, and as disks and programs break them."""

import gzip
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from overnight.tasks.ingest.sources import webdataset
from overnight.tasks.ingest.sources.webdataset import WebDataset
from tests.tasks.ingest.conftest import Read, overwritten

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


def test_shards_may_be_packed_whatever_their_names_and_an_extension_may_be_met_late(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdataset, "SAMPLE_ROWS", 1)
    monkeypatch.setattr(webdataset, "ROWS_AT_ONCE", 2)
    content = gzip.compress(tar({"0.a": b"", "1.a": b"", "2.a": b"", "2.b": b"x"}))
    found = read(WebDataset, {"s.tar.gz": content, "s.tgz": content, "t.tar": content})
    assert [row.get("b") for row in found.good.values()] == [None, None, b"x"] * 3


def test_columns_are_named_and_take_the_first_extension_that_is_there(read: Reader) -> None:
    files = {"0.png": b"a", "0.txt": b"x", "1.jpg": b"b", "1.png": b"c", "2.txt": b"no image"}
    found = read(WebDataset, {"s.tar": tar(files)}, columns={"image": "jpg;png"})
    assert [(row["key"], row["image"]) for row in found.good.values()] == [("0", b"a"), ("1", b"b")]
    assert found.bad == {"s.tar#2": "sample 2: expected a file that ends in jpg;png, found txt"}


NO_SAMPLES: dict[str, tuple[list[tuple[str, bytes]], str]] = {
    "no UTF-8": ([("x.txt", b"\xff")], "x.txt: expected text in UTF-8, found b'\\xff'"),
    "no number": ([("x.cls", b"")], "x.cls: expected a whole number of 64 bits, found b''"),
    "a long number": ([("x.cls", b"9" * 30)], "x.cls: expected a whole number of 64 bits, found b'999"),
    "one name twice": ([("x.txt", b"a"), ("x.txt", b"b")], "sample x: found two files named x.txt"),
    "a name in Latin-1": ([("gr\udcfcn.txt", b"a")], "expected file names in UTF-8, found 'gr\\udcfcn.txt'; rename"),
    "an ending in Latin-1": ([("x.t\udcfct", b"a")], "expected file names in UTF-8, found 'x.t\\udcfct'; rename"),
    "an ending that is taken": ([("x.key", b"a")], "x.key: key is the column of the names; rename the file"),
}


@pytest.mark.parametrize(("files", "reason"), NO_SAMPLES.values(), ids=NO_SAMPLES)
def test_a_sample_that_cannot_be_read_is_quarantined_alone_with_the_reason(
    read: Reader, files: list[tuple[str, bytes]], reason: str
) -> None:
    around = [("0.txt", b"well"), ("0.cls", b"1")], [("y.txt", b"too"), ("y.cls", b"2")]
    found = read(WebDataset, {"s.tar": tar(around[0] + files + around[1])})
    assert [(name, row["txt"], row["cls"]) for name, row in found.good.items()] == [
        ("s.tar#0", "well", 1),
        ("s.tar#2", "too", 2),
    ]
    assert list(found.bad) == ["s.tar#1"]
    assert found.bad["s.tar#1"].startswith(reason)


WHOLE = tar(pairs(20))  # a sample is 512 + 1024 + 512 + 512 bytes


PACKED = gzip.compress(WHOLE, 1, mtime=0)
HEADER = "expected the header of a file in a tar archive: "
PACKING = "expected a whole gzip file: "


def of_size(size: int, name: str = "0.bin") -> bytes:
    """A shard whose first file, of 512 bytes, is declared to have another size, with a right check sum."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT) + tar({name: b"x" * 512, "1.bin": b"x" * 512})[512:]


HOSTILE = {
    "files-apart.tar": (tar([("0.txt", b"a"), ("1.txt", b"b"), ("0.cls", b"1")]), 1, "next to each other"),
    "empty.tar": (b"", 0, "expected the mark that ends a tar archive, found the end of the file"),
    "text.tar": (b"no tar", 0, HEADER + "truncated header"),
    "zip.tar": (b"PK\x03\x04" + bytes(999), 0, HEADER + "bad checksum"),
    "cut-in-header.tar": (WHOLE[: 2560 * 7 + 100], 6, HEADER + "truncated header"),
    "cut-in-file.tar": (WHOLE[: 2560 * 7 + 700], 7, "expected a whole tar archive: unexpected end of data"),
    "cut-between-samples.tar": (WHOLE[: 2560 * 8], 7, "expected the mark that ends a tar archive"),
    "size-changed.tar": (overwritten(WHOLE, 2560 * 5 + 124, 2560 * 5 + 130), 4, HEADER + "bad checksum"),
    "unpacked.tgz": (b"\x1f\x8bno gzip", 0, PACKING),
    "cut.tar.gz": (PACKED[: len(PACKED) * 2 // 3], 13, PACKING + "Compressed file ended before"),
    "sum.tgz": (overwritten(PACKED, -8, -4), 19, PACKING + "CRC check failed"),
    "larger.tar": (of_size(2**20), 0, "expected a whole tar archive"),
    "huge.tar": (of_size(2**60), 0, "expected"),
    "smaller.tar": (of_size(1), 2, ""),
    "negative.tar": (of_size(-5), 0, "expected"),
    "folder.tar": (of_size(512, "0.d/"), 1, ""),
}


def with_holes(size: str, holes: str = "0,512") -> bytes:
    """A shard with a file of 512 bytes that says it is larger, the rest of it holes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, headers in (("0.bin", {}), ("1.bin", {"GNU.sparse.size": size, "GNU.sparse.map": holes})):
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = 512, headers
            archive.addfile(member, io.BytesIO(b"x" * 512))
    return buffer.getvalue()


def test_a_file_with_holes_is_read_as_far_as_it_is_not_all_holes(read: Reader) -> None:
    whole, hollow = with_holes("2048"), with_holes(str(10**15))
    found = read(WebDataset, {"a.tar": whole, "b.tar": hollow, "c.tar": with_holes("2048", "no,number")})
    assert [len(row["bin"]) for row in found.good.values()] == [512, 2048, 512]
    assert list(found.bad) == ["b.tar#1", "c.tar"]
    assert "found 1,000,000,000,000,000" in found.bad["b.tar#1"]
    assert found.bad["c.tar"].startswith("expected a whole tar archive: ")


def test_a_sample_beyond_the_bound_is_quarantined_alone(read: Reader) -> None:
    files = {"0.txt": b"x", "1.txt": b"x" * 60, "1.jpg": b"x" * 60, "2.jpg": b"x" * 100, "2.txt": b""}
    found = read(WebDataset, {"a.tar": tar(files)}, max_row_bytes=100)
    assert list(found.good) == ["a.tar#0", "a.tar#2"]
    assert found.bad["a.tar#1"].startswith("expected files of the sample 1 of at most max_row_bytes = 100 bytes")


def test_links_and_folders_in_a_shard_are_no_files(read: Reader, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind in (("0.txt", tarfile.SYMTYPE), ("1.d", tarfile.DIRTYPE), ("2.txt", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    files = {"a.tar": buffer.getvalue(), "b.tar": tar({}), "c.tar": tar({"readme": b""})}
    assert read(WebDataset, files).counts == dict.fromkeys(files, 0)
