"""The samples of a tar archive hold the bytes of their files, however long, and name what damages them."""

import io
import tarfile

import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.tar_samples import BUFFER_BYTES, Sample, samples


def archive(*files: tuple[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


def read(content: bytes, most: int = 2**30) -> list[Sample]:
    return list(samples(io.BytesIO(content), most))


def test_files_that_share_a_name_are_a_sample_with_each_of_their_bytes() -> None:
    long = bytes(number % 251 for number in range(2 * BUFFER_BYTES + 3))
    first, second = read(archive(("a/x.jpg", long), ("a/x.seg.png", b""), ("a/y.jpg", b"123"), (".hidden", b"4")))
    assert (first.key, first.files, first.damage) == ("a/x", {"jpg": long, "seg.png": b""}, None)
    assert (second.key, second.files) == ("a/y", {"jpg": b"123"})


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("x.jpg", b"1"), ("x.jpg", b"2")], "found two files named x.jpg"),
        ([("x.jpg", bytes(60)), ("x.cls", bytes(41))], "files of the sample x"),
    ],
)
def test_a_sample_that_is_no_good_says_why_and_the_next_one_is_whole(
    files: list[tuple[str, bytes]], words: str
) -> None:
    bad, good = read(archive(*files, ("y.jpg", bytes(100))), most=100)
    assert words in str(bad.damage)
    assert (good.damage, good.files) == (None, {"jpg": bytes(100)})


def test_an_archive_that_is_cut_keeps_its_whole_samples() -> None:
    content = archive(("x.jpg", b"1"), ("y.jpg", b"2"), ("z.jpg", b"3"))
    found = samples(io.BytesIO(content[: 5 * 512]), 100)
    assert next(found).files == {"jpg": b"1"}
    with pytest.raises(RowError):
        list(found)
