"""The publish of a retry: new rows join the published ones, which stay to the byte, in every kind of sink."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import CheckFailed
from overnight.tasks.rows import blocks
from overnight.tasks.state import published_rows as records
from overnight.tasks.state.row_ranges import RANGES, Totals
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.state.staged_parts import read_records
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.publish.publish import prepared, publish
from overnight.tasks.write.publish.retried import read_retried, receipt_of_retry, refuse_other_columns
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.sinks.delta import DeltaSink
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.sinks.sql import SqlSink
from overnight.tasks.write.tables.database import engine
from overnight.tasks.write.tables.delta import open_table
from tests.contracts.sinks.publications import (
    NO_ERRORS,
    columns_of,
    holding,
    kept_of,
    numbered,
    publish_parts,
    receipt_of,
    records_of,
    sink_of,
    stage,
    visible,
)
from tests.tasks.runs import make_run

OLD, NEW = [1, 2, 3], [4, 5]


def join(run: Run, sink: Sink, files: list[str], there: dict[str, Any], *parts: dict[str, Any]) -> dict[str, Any]:
    """Stages parts, and publishes them beside what `there` is in the files; the receipt."""
    stage(run, *parts, first=len(there["x"]))
    with holding(run) as held, prepared(held, sink, *records_of(run), kept_of(files, there)) as ready:
        assert ready.rows == len(there["x"]) + sum(len(part["x"]) for part in parts)
        assert ready.columns["x"]["rows"] == ready.rows
        receipt = receipt_of(run, sink, ready)
        publish(held, sink, ready, NO_ERRORS, receipt)
    return receipt


@pytest.mark.parametrize(
    ("kind", "partition"),
    [
        ("parquet", "2026-01-02"),
        ("parquet", "all"),
        ("csv", "2026-01-02"),
        ("jsonl", "all"),
        ("images", "all"),
        ("delta", "2026-01-02"),
        ("delta", "all"),
        ("iceberg", "2026-01-02"),
        ("iceberg", "all"),
        ("lance", "2026-01-02"),
        ("sql", "2026-01-02"),
        ("sql", "all"),
    ],
)
def test_new_rows_join_the_published_ones_and_a_publish_without_new_rows_keeps_them_all(
    kind: str, partition: str, tmp_path: Path
) -> None:
    sink, first = sink_of(kind, tmp_path), numbered(tmp_path, 1, partition)
    assert sink.keeps_rows
    files = publish_parts(first, sink, columns_of(kind, OLD))
    other = numbered(tmp_path, 4, "2026-01-01")
    if partition != "all" and kind != "sql":  # whose rows are not told apart here
        publish_parts(other, sink, columns_of(kind, [9]))
    bytes_before = {
        file: (tmp_path / "out" / file).read_bytes() for file in files if (tmp_path / "out" / file).is_file()
    }
    assert sink.lost(first, files, len(OLD)) == ""

    receipt = join(numbered(tmp_path, 2, partition), sink, files, columns_of(kind, OLD), columns_of(kind, NEW))
    assert visible(first, sink) == [*OLD, *NEW]
    assert set(files) <= set(receipt["files"])
    assert {file: (tmp_path / "out" / file).read_bytes() for file in bytes_before} == bytes_before

    again = join(numbered(tmp_path, 3, partition), sink, receipt["files"], columns_of(kind, [*OLD, *NEW]))
    assert again["files"] == receipt["files"]
    assert visible(first, sink) == [*OLD, *NEW]
    assert sink.lost(first, again["files"], 5) == ""
    if partition != "all" and kind != "sql":  # whose rows are not told apart here
        assert visible(other, sink) == [9]
    if kind == "images":
        folders = [tmp_path / "out" / file for file in again["files"] if file.endswith(".images")]
        assert sum(len(list(folder.iterdir())) for folder in folders) == 5


def test_a_file_or_a_row_that_is_gone_is_named(tmp_path: Path) -> None:
    parquet, delta, sql = (sink_of(kind, tmp_path / kind) for kind in ("parquet", "delta", "sql"))
    assert isinstance(parquet, ParquetSink)
    (tmp_path / "sql").mkdir()
    places = {kind: numbered(tmp_path / kind, 1) for kind in ("parquet", "delta", "sql")}
    files = {
        kind: publish_parts(places[kind], sink, columns_of(kind, OLD))
        for kind, sink in (("parquet", parquet), ("delta", delta), ("sql", sql))
    }
    (tmp_path / "parquet/out" / files["parquet"][0]).unlink()
    assert files["parquet"][0].rsplit("/", 1)[-1] in parquet.lost(places["parquet"], files["parquet"], 3)
    assert isinstance(delta, DeltaSink)
    table = open_table(places["delta"].sink)
    assert table
    table.delete("x = 2")
    assert delta.lost(places["delta"], files["delta"], 3) == "1 of 3 published rows"
    assert isinstance(sql, SqlSink)
    with engine(sql.url).begin() as connection:
        connection.exec_driver_sql("DELETE FROM results WHERE x > 1")
    assert sql.lost(places["sql"], [], 3) == "2 of 3 published rows"


@pytest.fixture
def retry(tmp_path: Path) -> Run:
    """A run that retries the generation `g1`: of units 0 to 2, one row, a whole file and no row are quarantined."""
    earlier, run = (make_run(tmp_path, generation=name, attempt=f"2026-{name}") for name in ("g1", "g2"))
    ranges = [
        *({"unit": unit, "start": 0, "stop": count, "state": blocks.END} for unit, count in ((0, 5), (1, 1), (2, 4))),
        {"unit": 0, "start": 0, "stop": 3, "state": blocks.LIVE},
        {"unit": 0, "start": 3, "stop": 4, "state": blocks.QUARANTINED},
        {"unit": 0, "start": 4, "stop": 5, "state": blocks.FILTERED},
        {"unit": 1, "start": 0, "stop": 1, "state": blocks.QUARANTINED},
        {"unit": 2, "start": 0, "stop": 4, "state": blocks.LIVE},
    ]
    merged = pa.Table.from_pylist(ranges, RANGES)
    schema = pa.schema([("x", pa.int64()), ("__unit", pa.int64()), ("__row", pa.int64())])
    rows = records.PublishedRows((), 14, {"x": "int64"}, {"x": {"rows": 14}})
    records.leave_record(earlier, schema, merged, rows, ["image"])
    write_json(
        run.ledger / "receipts/g1.json",
        {
            **{"generation": "g1", "attempt": "2026-g1", "finished_at": "then", "rows_written": 7, "rows_out": 14},
            **{"rows_quarantined": 2, "fingerprint": "f1", "ingredients": {"of": "g1"}, "files": ["a", "b"]},
        },
    )
    more = {"current": "f2", "ingredients": {"of": "g2"}, "code": ["files changed"], "again": ["b"], "gone": []}
    write_json(run.home / "generation.json", {"retries": "g1", **more})
    return run


def test_a_retry_begins_with_all_settled_rows_but_the_quarantined_and_counts_their_units_again(retry: Run) -> None:
    settled = records.settled_record(retry, "g1")
    assert settled
    records.take_over(retry, settled, records.without_quarantined(settled.ranges))
    (part,) = read_records(retry.parts)
    assert (part.rows, part.left_out, part.schema.names) == (0, ("image",), ["x", "__unit", "__row"])
    found = {(row["unit"], row["start"], row["stop"], row["state"]) for row in part.ranges.to_pylist()}
    assert found == {
        (0, 0, 3, blocks.LIVE),
        (0, 4, 5, blocks.FILTERED),
        (2, 0, 4, blocks.LIVE),
        (2, 0, 4, blocks.END),
    }
    assert part.name < retry.attempt  # the older part wins


def test_the_receipt_of_a_retry_counts_its_rows_and_keeps_what_the_other_rows_were_made_with(retry: Run) -> None:
    retried = read_retried(retry)
    assert retried
    assert (retried.kept.files, retried.kept.rows) == (("a", "b"), 14)
    nothing = np.empty(0, np.int64)
    totals = Totals(24, 20, 2, 2, nothing, nothing)
    made = receipt_of_retry(retry, retried, totals, 40, "now")
    assert (made["fingerprint"], made["ingredients"]) == ("f1", {"of": "g1"})
    counts = ("rows_quarantined_before", "rows_in", "rows_written", "rows_filtered", "rows_quarantined")
    assert [made["retried"][name] for name in counts] == [2, 16, 13, 1, 2]
    first, second = made["parts"]
    assert (first["generation"], first["rows_out"], first["fingerprint"]) == ("g1", 14, "f1")
    assert (second["generation"], second["rows_out"], second["ingredients"]) == ("g2", 26, {"of": "g2"})
    assert "ingredients" not in first
    assert read_retried(replace(retry, generation="g1")) is None
    assert read_json(retry.ledger / "receipts/g1.json")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"x": pa.int64(), "y": pa.string()}, r"y \(no column -> string\)"),
        ({"x": pa.float64()}, r"x \(int64 -> double\)"),
        ({}, r"x \(int64 -> no column\)"),
    ],
)
def test_retried_rows_with_other_columns_are_refused_by_name(retry: Run, found: dict[str, Any], said: str) -> None:
    retried = read_retried(retry)
    assert retried
    refuse_other_columns(retried, Prepared([], pa.schema([("x", pa.int64())])))
    with pytest.raises(CheckFailed, match=said):
        refuse_other_columns(retried, Prepared([], pa.schema(list(found.items()))))
