"""The record of a retry: which rows are settled already, which made rows stay, and which columns new ones must have."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import CheckFailed
from overnight.tasks.ingest.reading.unit_rows import file_units
from overnight.tasks.rows import blocks
from overnight.tasks.state import published_rows as records
from overnight.tasks.state.manifest import begin_manifest
from overnight.tasks.state.row_ranges import RANGES, Totals
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.state.staged_parts import read_records
from overnight.tasks.storage.location import File
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.publish.continued import continued_receipt, read_continued, refuse_other_columns
from overnight.tasks.write.sinks.sql import SqlSink
from overnight.tasks.write.tables.delta import open_table
from overnight.tasks.write.tables.sql import engine
from tests.contracts.sinks.publications import numbered, publish_parts, sink_of
from tests.tasks.runs import make_run


def test_a_file_or_a_row_that_is_gone_is_named(tmp_path: Path) -> None:
    def published(kind: str) -> tuple[Any, Run, list[str]]:
        (tmp_path / kind).mkdir()
        sink, run = sink_of(kind, tmp_path / kind), numbered(tmp_path / kind, 1)
        return sink, run, publish_parts(run, sink, {"x": [1, 2, 3]})

    sink, run, [file] = published("parquet")
    (run.sink / file).remove()
    assert file.rsplit("/", 1)[-1] in sink.lost(run, [file], 3)
    sink, run, files = published("delta")
    table = open_table(run.sink)
    assert table
    table.delete("x = 2")
    assert sink.lost(run, files, 3) == "1 of 3 published rows"
    sink, run, files = published("sql")
    assert isinstance(sink, SqlSink)
    with engine(sink.url).begin() as connection:
        connection.exec_driver_sql("DELETE FROM results WHERE x > 1")
    assert sink.lost(run, files, 3) == "2 of 3 published rows"


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
    receipt = {"generation": "g1", "attempt": "2026-g1", "finished_at": "then", "rows_written": 7, "rows_out": 14}
    for generation, rows in (("g1", (5, 1, 4)), ("g2", (5, 15, 4))):
        with begin_manifest(replace(run, generation=generation).manifest) as manifest:
            manifest.add(file_units([File(name, name, 1, "v") for name in "abc"], rows))
            manifest.finish("inputs", None)
    more = {"rows_in": 10, "rows_quarantined": 2, "fingerprint": "f1", "ingredients": {"of": "g1"}, "files": ["a", "b"]}
    write_json(run.ledger / "receipts/g1.json", receipt | more)
    begun = {
        "is_retry": True,
        "replaced": [],
        "why": [],
        "current": "f2",
        "ingredients": {"of": "g2"},
        "code": ["files changed"],
        "again": ["b"],
        "gone": [],
    }
    write_json(run.home / "generation.json", {"continues": "g1", **begun})
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
    retried = read_continued(retry)
    assert retried
    assert (retried.kept.files, retried.kept.rows) == (("a", "b"), 14)
    nothing = np.empty(0, np.int64)
    totals = Totals(24, 20, 2, 2, nothing, nothing)
    settled = records.settled_record(retry, "g1")
    assert settled
    records.take_over(retry, settled, records.without_quarantined(settled.ranges))
    parts, merged = read_records(retry.parts), RANGES.empty_table()
    made = continued_receipt(retry, retried, parts, merged, totals, 40, "now")
    assert (made["fingerprint"], made["ingredients"]) == ("f1", {"of": "g1"})
    counts = ("rows_quarantined_before", "rows_in", "rows_written", "rows_filtered", "rows_quarantined")
    assert [made["retried"][name] for name in counts] == [2, 16, 13, 1, 2]
    counts = ("rows_reused", "rows_added", "rows_changed", "rows_removed", "files_changed", "files_removed")
    assert [made["continued"][name] for name in counts] == [8, 0, 15, 1, 1, 0]
    first, second = made["parts"]
    assert (first["generation"], first["rows_out"], first["fingerprint"]) == ("g1", 14, "f1")
    assert (second["generation"], second["rows_out"], second["ingredients"]) == ("g2", 26, {"of": "g2"})
    assert "ingredients" not in first
    assert read_continued(replace(retry, generation="g1")) is None
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
    retried = read_continued(retry)
    assert retried
    refuse_other_columns(retried, Prepared([], pa.schema([("x", pa.int64())])))
    with pytest.raises(CheckFailed, match=said):
        refuse_other_columns(retried, Prepared([], pa.schema(list(found.items()))))
