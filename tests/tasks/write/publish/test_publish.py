"""A publish that is paused is taken back for good by the next run, and readers know when one is under way."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from lance import LanceDataset
from pyiceberg.catalog.sql import SqlCatalog

from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.lease import LeaseLost
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.write.publish.publish import audit, is_under_way, repair
from overnight.tasks.write.sinks import directory_swap
from overnight.tasks.write.sinks.delta import DeltaSink
from overnight.tasks.write.sinks.iceberg import IcebergSink
from overnight.tasks.write.sinks.lance import LanceSink
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.sinks.sql import SqlSink
from tests.contracts.sinks.publications import (
    holding,
    numbered,
    publish_parts,
    publish_ready,
    ready_to_publish,
    sink_of,
    stage,
    visible,
)
from tests.tasks.manifests import write_manifest
from tests.tasks.runs import make_run

OLD, NEW = [1, 2, 3], [4, 5]


@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        ("parquet", (ParquetSink, "commit")),
        ("parquet", (directory_swap, "exchange")),
        ("delta", (DeltaSink, "commit")),
        ("delta", (DeltaTable, "create_write_transaction")),
        ("iceberg", (IcebergSink, "commit")),
        ("iceberg", (SqlCatalog, "commit_table")),
        ("lance", (LanceSink, "commit")),
        ("lance", (LanceDataset, "commit")),
        ("sql", (SqlSink, "commit")),
    ],
)
def test_a_switch_that_was_paused_while_its_publish_was_taken_back_changes_nothing(
    kind: str, moment: tuple[Any, str], partition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: the zombie has checked its lease, and the successor's repair comes before the switch."""
    sink = sink_of(kind, tmp_path)
    files = publish_parts(numbered(tmp_path, 1, partition), sink, {"x": OLD})
    zombie = numbered(tmp_path, 2, partition)
    stage(zombie, {"x": NEW})
    real, repaired = getattr(*moment), []

    def late(*args: Any, **kwargs: Any) -> Any:
        if not repaired:
            repaired.append(None)
            (zombie.ledger / "lease" / f"{held.token + 1:08d}").create(b"{}")
            repaired[0] = repair(replace(numbered(tmp_path, 3, partition), token=held.token + 1), sink)
        return real(*args, **kwargs)

    monkeypatch.setattr(*moment, late)
    with ready_to_publish(zombie, sink) as (held, ready), pytest.raises(LeaseLost):
        publish_ready(held, sink, ready)
    assert repaired[0] is not None
    assert repaired[0].receipt is None
    assert visible(zombie, sink) == OLD
    assert (read_json(zombie.ledger / "receipt.json") or {})["files"] == files
    assert len(staged_parts.read_records(zombie.parts)) == 1


def test_a_publish_is_under_way_from_its_first_file_until_what_is_old_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool, bool]] = []

    def watch(step: str) -> None:
        real = getattr(ParquetSink, step)

        def watched(sink: Any, run: Run, *more: Any) -> Any:
            before, outcome = is_under_way(run), real(sink, run, *more)
            seen.append((step, before, is_under_way(run)))
            return outcome

        monkeypatch.setattr(ParquetSink, step, watched)

    for step in ("prepare", "commit", "finish"):
        watch(step)
    run = numbered(tmp_path, 1)
    publish_parts(run, ParquetSink(path="-"), {"x": OLD})
    assert seen == [("prepare", True, True), ("commit", True, True), ("finish", True, True)]
    assert not is_under_way(run)


class Switched(ParquetSink):
    """A sink whose readers see the new rows already."""

    kind: Literal["switched"] = "switched"

    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        return True

    def finish(self, run: Run, files: list[str], old: list[str]) -> None: ...


def test_a_publish_that_is_completed_names_the_run_that_had_begun_it(tmp_path: Path) -> None:
    with holding(make_run(tmp_path)) as run:
        begun = {"generation": run.generation, "attempt": run.attempt, "flow_run": "run 1"}
        write_json(run.ledger / "publishing.json", {**begun, "receipt": {"files": []}, "old": []})
        (run.home / "quarantine").write_bytes(b"")
        repaired = repair(run, Switched(path="-"))
    assert repaired
    assert (repaired.flow_run, repaired.receipt) == ("run 1", {"files": []})


def units(*counts: int | None) -> pa.Table:
    unit = {"uri": "u", "size": 1, "version": "v", "first_row": 0, "row_group": None}
    listed = [unit | {"unit": i, "path": f"{i}.csv", "rows": count} for i, count in enumerate(counts)]
    return pa.Table.from_pylist(listed, schema=UNITS)


def ranges_of(*ranges: tuple[int, int, int, int]) -> pa.Table:
    rows = [dict(zip(row_ranges.RANGES.names, values, strict=True)) for values in ranges]
    return row_ranges.merge([pa.Table.from_pylist(rows, row_ranges.RANGES)])


def test_totals_of_a_partition_that_is_whole(tmp_path: Path):
    found = ranges_of(
        (0, 0, 5, blocks.LIVE), (0, 5, 7, blocks.FILTERED), (1, 0, 1, blocks.QUARANTINED), (1, 0, 1, blocks.END)
    )
    totals = audit(units(7, None), found, make_run(tmp_path))
    assert (totals.rows, totals.written, totals.filtered, totals.quarantined) == (8, 5, 2, 1)


@pytest.mark.parametrize(
    ("counts", "found", "message"),
    [
        ([5, 5], [(0, 0, 5, blocks.LIVE), (1, 0, 4, blocks.LIVE)], r"1 units are not settled, .* 1\.csv.*/parts"),
        ([5], [], r"not settled, the first in 0\.csv"),
        ([None], [(0, 0, 5, blocks.LIVE)], "not settled"),
        ([5], [(0, 0, 6, blocks.LIVE)], "settled more than once"),
        ([5], [(0, 0, 4, blocks.LIVE), (0, 7, 8, blocks.LIVE)], "not settled"),
    ],
)
def test_what_is_not_settled_exactly_once_is_refused(tmp_path: Path, counts: list, found: list, message: str):
    run = make_run(tmp_path)
    write_manifest(run.manifest, units(*counts), "digest", None)
    with pytest.raises(CheckFailed, match=message):
        audit(units(*counts), ranges_of(*found), run)
