"""A local file is complete and on the disk before it gets its name."""

import os
from pathlib import Path

import pytest

from overnight.tasks.storage.local_file import temporary_file
from overnight.tasks.storage.location import Location


def test_bytes_are_on_the_disk_before_the_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, events = tmp_path / "deep/a", list[str]()
    sync, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size == 5, "Python's own buffer is flushed first"
        events.append("on the disk")
        sync(descriptor)

    def replace(source: str, target: str) -> None:
        events.append("named")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    Location(str(place)).write_bytes(b"bytes")
    assert events == ["on the disk", "named"]
    assert place.read_bytes() == b"bytes"


def test_a_body_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with temporary_file(str(tmp_path / "a")) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
