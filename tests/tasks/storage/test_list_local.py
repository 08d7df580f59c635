"""Walking a folder in order, held to fsspec's own listing, sorted afterwards; and where links lead."""

import os
import random
import socket
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from overnight.tasks.storage import list_local
from overnight.tasks.storage.file_info import entry_of
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.list_local import local_entries

NAMES = ["a", "a.b", "a b", "a-b", "a0", "ab", "b", "ü", "~", "[x]", "é", "\U0001f600", ".h", "_u", "A"]


def simple_way(root: str) -> list:
    return [entry_of(name, info) for name, info in sorted(LocalFileSystem().find(root, detail=True).items())]


@pytest.mark.parametrize("names_at_once", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_a_walk_meets_what_a_sorted_list_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, names_at_once: int
):
    monkeypatch.setattr(list_local, "NAMES_AT_ONCE", names_at_once)
    source = random.Random(seed)
    for _ in range(60):
        path = tmp_path.joinpath(*(source.choice(NAMES) for _ in range(source.choice([1, 1, 2, 3, 4]))))
        if not any(parent.is_file() for parent in [path, *path.parents]) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * source.randrange(9))
            os.utime(path, ns=(1, source.randrange(10**18)))
    (tmp_path / "empty").mkdir()
    expected = simple_way(str(tmp_path))
    assert len(expected) > 10
    assert list(local_entries(str(tmp_path))) == expected


def test_a_file_is_itself_and_what_is_not_there_is_nothing(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"xyz")
    assert list(local_entries(f"{tmp_path}/a")) == simple_way(f"{tmp_path}/a") != []
    assert list(local_entries(f"{tmp_path}/b")) == []


def found(root: Path) -> dict[str, str]:
    """Of each path below `root` what it is instead of a file; the paths in their order."""
    entries = {entry.name.removeprefix(f"{root}/"): entry.special_kind for entry in local_entries(str(root))}
    assert list(entries) == sorted(entries)
    return entries


def test_a_link_to_a_file_is_that_file_with_its_size_and_its_version(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"12345")
    os.utime(tmp_path / "blob", ns=(1, 7_000_000_000))
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "a.txt").symlink_to("../blob")
    (tmp_path / "snapshot" / "b.txt").symlink_to("a.txt")
    (tmp_path / "link").symlink_to("snapshot")
    for folder in ("snapshot", "link"):
        entries = list(local_entries(str(tmp_path / folder)))
        assert [(entry.size, entry.version, entry.special_kind) for entry in entries] == [(5, "7.000000", "")] * 2
    came = [os.lstat(tmp_path / "snapshot/a.txt").st_ctime, os.stat(tmp_path / "blob").st_ctime]
    assert entries[0].changed_at == max(came), "a file that a link brought only now has come only now"


def test_links_to_folders_are_followed_once_and_loops_are_told(tmp_path: Path):
    root = tmp_path / "root"
    for folder in (root / "a", root / "z", tmp_path / "outside" / "deep"):
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(b"1")
    (root / "a" / "to-root").symlink_to(root)
    (root / "b").symlink_to(root / "z")
    (root / "c").symlink_to(root / "z")
    (root / "d").symlink_to(tmp_path / "outside" / "deep")
    (tmp_path / "outside" / "deep" / "up").symlink_to("..")
    assert found(root) == {
        "a/to-root": "loop of links",
        "a/x": "",
        "b/x": "file that is listed without this link",
        "c": "link to a folder that another link leads to",
        "d/up/deep": "loop of links",
        "d/x": "",
        "z/x": "",
    }


@pytest.mark.parametrize(
    ("pattern", "listed"),
    [
        (None, ["_hidden/x", "a/deep/x", "from-hidden/x"]),
        ("*/deep/*", ["a/deep/x"]),
        ("**/x", ["_hidden/x", "a/deep/x", "from-hidden/x"]),
        ("to-a*", ["to-a/deep/x"]),
        ("to-deep/x", ["to-deep/x"]),
    ],
)
def test_a_file_behind_a_link_is_listed_only_if_it_is_not_by_its_own_path(
    tmp_path: Path, pattern: str | None, listed: list[str]
):
    """`_hidden/x` is in the listing of the folder, and skipped for its name later: so its link is the way to it."""
    root = tmp_path / "real"
    for folder in ("a/deep", "_hidden"):
        (root / folder).mkdir(parents=True)
        (root / folder / "x").write_bytes(b"1")
    for name, target in (("to-a", "a"), ("to-deep", "a/deep"), ("from-hidden", "_hidden")):
        (root / name).symlink_to(target)
    (tmp_path / "root").symlink_to(root)
    chosen = Pattern(pattern) if pattern else None
    names = [
        (entry.name.removeprefix(f"{tmp_path}/root/"), entry) for entry in local_entries(f"{tmp_path}/root", chosen)
    ]
    assert [name for name, entry in names if not entry.special_kind and (not chosen or chosen.matches(name))] == listed


def test_what_is_no_file_is_named_as_what_it_is(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to-fifo").symlink_to("fifo")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "nothing").symlink_to("nowhere")
    (tmp_path / "through").symlink_to("file/inside")
    (tmp_path / "file").write_bytes(b"")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
        assert found(tmp_path) == {
            "device": "device",
            "fifo": "FIFO",
            "file": "",
            "itself": "link that leads to itself",
            "nothing": "link to nothing",
            "socket": "socket",
            "through": "link to nothing",
            "to-fifo": "FIFO",
        }
    assert [entry.special_kind for entry in local_entries(str(tmp_path / "fifo"))] == ["FIFO"]
