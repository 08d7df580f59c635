"""Directories of files where the filesystem is not an ordinary one, and on an object store."""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.tasks.write.sink import as_names
from overnight.tasks.write.sinks import directory_swap, hive_files
from overnight.tasks.write.sinks.parquet import ParquetSink
from tests.contracts.sinks.publications import numbered, publish_parts, visible

SINK = ParquetSink(path="-", grace_seconds=60)


def test_a_directory_keeps_its_access_rights_and_a_link_to_it_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o2770)
    (tmp_path / "out").symlink_to("real")
    [file] = publish_parts(numbered(tmp_path, 1, "all"), SINK, {"x": [1]})
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "real" / file).exists()
    assert stat.S_IMODE(os.stat(tmp_path / "real").st_mode) == 0o2770


def no_exchange(first: str, second: str) -> None:
    raise OSError(errno.EINVAL, "no such flag on this filesystem")


def no_move(directory: str, target: str) -> bool:
    """As where sink.path is a mount point: there is no place beside it from which a rename leads into it."""
    return False


@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
@pytest.mark.parametrize(("name", "refusal"), [("swap", no_exchange), ("can_move", no_move)])
def test_where_no_directory_can_be_exchanged_files_are_renamed(
    partition: str, name: str, refusal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_swap, name, refusal)
    for number, numbers in enumerate(([1], [2, 3])):
        run = numbered(tmp_path, number, partition)
        files = publish_parts(run, SINK, {"x": numbers})
        assert visible(run, SINK) == numbers
        assert set(run.target.names()) - {"_overnight"} == as_names(files)
    assert not [name for name in run.sink.parent.names() if "publishing" in name]


def test_replaced_files_stay_on_an_object_store_for_their_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (numbered(f"memory://{tmp_path.name}", number) for number in (1, 2))
    waits: list[tuple[float, int]] = []
    clock = SimpleNamespace(sleep=lambda seconds: waits.append((seconds, len(first.target.names()))))
    monkeypatch.setattr(hive_files, "time", clock)
    publish_parts(first, SINK, {"x": [1]})
    assert waits == [], "there was nothing to wait for"
    publish_parts(second, SINK, {"x": [2]})
    assert waits == [(60, 2)]
    assert visible(second, SINK) == [2]


def test_a_delta_table_is_foreign_to_plain_parquet(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    assert SINK.foreign(run, set()) == []
    (run.sink / "_delta_log" / "00000000000000000000.json").write_bytes(b"{}")
    assert SINK.foreign(run, set()) == ["_delta_log"]
