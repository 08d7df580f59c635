"""Delta tables that others write to, compact and vacuum."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from overnight.tasks.errors import CheckFailed
from overnight.tasks.write.sinks.delta import DeltaSink
from tests.contracts.sinks.publications import kept_of, numbered, publish_parts, visible

SINK = DeltaSink(path="-")


def test_rows_that_somebody_else_put_into_the_partition_are_foreign(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1, "2026-01-02")
    files = publish_parts(run, SINK, {"x": [1]})
    days = pa.array([dt.date(2026, 1, 2), dt.date(2026, 1, 3)])
    write_deltalake(tmp_path / "out", pa.table({"row_id": ["b", "c"], "x": [8, 9], "date": days}), mode="append")
    [theirs] = SINK.foreign(run, set(files))
    assert theirs.startswith("date=2026-01-02/")
    assert theirs not in files


def test_a_compacted_partition_is_ours_and_vacuum_takes_replaced_files_and_nothing_else(tmp_path: Path) -> None:
    first = publish_parts(numbered(tmp_path, 1), SINK, {"x": [1]})
    files = publish_parts(numbered(tmp_path, 2), SINK, {"x": [2]}, kept=kept_of(first, {"x": [1]}))
    assert DeltaTable(tmp_path / "out").optimize.compact()["numFilesAdded"] == 1
    run = numbered(tmp_path, 3)
    assert SINK.foreign(run, set(files)) == []
    new = publish_parts(run, SINK, {"x": [3]})
    assert all((tmp_path / "out" / file).exists() for file in files)
    state = sorted((tmp_path / "out/_overnight").rglob("*"))
    DeltaTable(tmp_path / "out").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert sorted((tmp_path / "out/_overnight").rglob("*")) == state
    assert [f"date=2026-01-02/{path.name}" for path in (tmp_path / "out/date=2026-01-02").glob("*.parquet")] == new
    assert visible(run, SINK) == [3]


def test_a_table_that_is_partitioned_otherwise_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "out", pa.table({"x": [1], "ds": ["a"]}), partition_by=["ds"])
    with pytest.raises(CheckFailed, match="ds"):
        SINK.foreign(numbered(tmp_path, 1), set())


def test_files_that_were_committed_are_never_discarded(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    [file] = publish_parts(run, SINK, {"x": [1]})
    SINK.discard(run)
    assert (tmp_path / "out" / file).exists()
