"""Members are found by the first bits of their keys, in the order of their files."""

import time
from pathlib import Path

import numpy as np

from overnight.tasks.reuse import kept_files
from overnight.tasks.reuse.kept_files import KeptFiles, is_older, keep_files
from overnight.tasks.storage.location import Location

NOW = time.strftime("%Y%m%dT%H%M%S", time.gmtime())


def test_members_are_read_once_and_the_newest_comes_last(tmp_path: Path) -> None:
    folder, reads = Location(str(tmp_path)), []

    def read(content: bytes) -> str:
        reads.append(content)
        return content.decode()

    numbers = np.array([1, 2], np.uint64)
    assert keep_files(folder, f"{NOW}-b", ".x", [(numbers, b"first"), (numbers[:1], b"second")]) == 3
    keep_files(folder, f"{NOW}-a", ".x", [(numbers[1:], b"older")])
    (tmp_path / f"{NOW}-c.x").write_bytes(b"without an index")
    files = KeptFiles([folder], ".x", 0.0, read)
    assert len(files) == 4
    for _ in range(2):
        assert [files.at(place) for place in files.places(np.uint64(2))] == ["older", "first"]
    assert reads == [b"older", b"first"]
    assert files.places(np.uint64(3)) == []


def test_a_name_tells_its_time() -> None:
    assert is_older("20200101T000000-a", time.time())
    assert not is_older(f"{NOW}-a", time.time() - 3600)  # this file may have been read long ago
    assert not is_older("mine.txt", time.time())


def test_the_index_takes_24_bytes_of_memory_per_answer() -> None:
    assert kept_files.MEMBER.itemsize + np.dtype(np.uint64).itemsize == 24
