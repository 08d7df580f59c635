"""Walking a folder in order, held to fsspec's own listing, sorted afterwards."""

import os
import random
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from tasks import local_listing
from tasks.entries import entry_of
from tasks.local_listing import local_entries

NAMES = ["a", "a.b", "a b", "a-b", "a0", "ab", "b", "ü", "~", "[x]", "é", "\U0001f600", ".h", "_u", "A"]


def simple_way(root: str) -> list:
    return [entry_of(name, info) for name, info in sorted(LocalFileSystem().find(root, detail=True).items())]


@pytest.mark.parametrize("names_at_once", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_a_walk_meets_what_a_sorted_list_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, names_at_once: int
):
    monkeypatch.setattr(local_listing, "NAMES_AT_ONCE", names_at_once)
    source = random.Random(seed)
    for _ in range(60):
        path = tmp_path.joinpath(*(source.choice(NAMES) for _ in range(source.choice([1, 1, 2, 3, 4]))))
        if not any(parent.is_file() for parent in [path, *path.parents]) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * source.randrange(9))
            os.utime(path, ns=(1, source.randrange(10**18)))
    (tmp_path / "to-file").symlink_to(next(p for p in tmp_path.rglob("*") if p.is_file()))
    (tmp_path / "to-folder").symlink_to(tmp_path)
    (tmp_path / "to-nothing").symlink_to(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    expected = simple_way(str(tmp_path))
    assert len(expected) > 10
    assert list(local_entries(LocalFileSystem(), str(tmp_path))) == expected


def test_a_file_is_itself_and_what_is_not_there_is_nothing(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"xyz")
    assert list(local_entries(LocalFileSystem(), f"{tmp_path}/a")) == simple_way(f"{tmp_path}/a") != []
    assert list(local_entries(LocalFileSystem(), f"{tmp_path}/b")) == []
