"""Duplicates among staged rows: which rows of which part go, and what becomes of their source rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.duplicates.exact import Equal
from overnight.tasks.duplicates.near import Near
from overnight.tasks.errors import ContractError
from overnight.tasks.rows.blocks import FILTERED, LIVE, QUARANTINED
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.write.merge.drop_duplicates import drop_duplicates
from overnight.tasks.write.merge.merge_parts import merge, published_schema
from tests.tasks.runs import make_run

Rows = list[tuple[int, int, Any]]  # unit, row, value


def stage(
    run: Run, name: str, rows: Rows, others: Sequence[tuple[int, int, int]] = (), kind: pa.DataType | None = None
) -> None:
    """A part with these rows; `others` are source rows without any: unit, row, state."""
    table = pa.table(
        {
            "row_id": [f"{unit}#{row}" for unit, row, _ in rows],
            "x": pa.array([value for *_, value in rows], kind or pa.int64()),
            "__unit": pa.array([unit for unit, *_ in rows], pa.int64()),
            "__row": pa.array([row for _, row, _ in rows], pa.int64()),
        }
    )
    if kind == pa.null():
        table = table.drop_columns(["x"])
    settled = [*((unit, row, LIVE) for unit, row, _ in rows), *others]
    names = ("__unit", "__row", "__state")
    block = pa.table({name: pa.array(column) for name, column in zip(names, zip(*settled, strict=True), strict=True)})
    ranges = row_ranges.ranges_of(block)
    staged_parts.write_part(run.parts, name, table, staged_parts.DETAILS.empty_table(), ranges, {}, "zstd")


def published(run: Run, *rules: Any) -> tuple[list[Any], pa.Table, int]:
    """The published rows (row_id, x), the ranges, and the number of duplicates."""
    records = staged_parts.read_records(run.parts)
    merged = row_ranges.merge([record.ranges for record in records])
    records, merged, count = drop_duplicates(run.parts, records, merged, rules)
    schema = published_schema(records)
    ready = merge(run.parts, records, merged, schema, run.sink, "f", "", "zstd", 2**20)
    tables = [pa.parquet.read_table(file.place.uri) for file in ready.files]
    rows = [(row["row_id"], row["x"]) for table in tables for row in table.to_pylist()]
    return sorted(rows, key=str), merged, count


def test_the_first_in_manifest_order_stays_whichever_part_has_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    stage(run, "t-1-0", [(1, 0, 5), (1, 1, 6), (0, 3, 7)])
    stage(run, "t-1-1", [(0, 0, 6), (0, 1, 5.0), (0, 2, None), (1, 2, None)], [(1, 3, FILTERED)], pa.float64())
    rows, merged, count = published(run, Equal(("x",)))
    assert rows == [("0#0", 6), ("0#1", 5), ("0#2", None), ("0#3", 7), ("1#2", None)]
    assert count == 2
    assert [row_ranges.rows_in_state(merged, state) for state in (LIVE, FILTERED, QUARANTINED)] == [5, 3, 0]


def test_a_source_row_is_filtered_if_all_rows_made_of_it_go(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    stage(run, "t-1-0", [(0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 1, 1), (0, 2, 1), (0, 2, 3), (0, 2, 3)])
    rows, merged, count = published(run, Equal(("x",)))
    assert rows == [("0#0", 1), ("0#0", 2), ("0#2", 3)]
    assert count == 4
    assert [row_ranges.rows_in_state(merged, state) for state in (LIVE, FILTERED)] == [2, 1]


def test_rows_of_a_part_that_another_part_settles_are_not_compared(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    stage(run, "t-1-0", [(0, 1, 5)], [(0, 0, QUARANTINED)])
    stage(run, "t-2-0", [(0, 0, 5), (0, 1, 5), (0, 2, 5), (0, 3, 6)])
    rows, merged, count = published(run, Equal(("x",)))
    assert rows == [("0#1", 5), ("0#3", 6)]
    assert count == 1
    assert [row_ranges.rows_in_state(merged, state) for state in (LIVE, FILTERED, QUARANTINED)] == [2, 1, 1]


def test_a_second_rule_compares_what_the_first_one_left(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    vectors = [[1.0, 0.0], [1.0, 0.01], [1.0, 0.0], [0.0, 1.0]]
    stage(run, "t-1-0", [(0, row, vector) for row, vector in enumerate(vectors)], kind=pa.list_(pa.float32(), 2))
    rows, _, count = published(run, Equal(("x",)), Near("x", 0.99))
    assert [row_id for row_id, _ in rows] == ["0#0", "0#3"]
    assert count == 2


def test_a_part_without_the_column_has_nulls_and_a_column_of_no_part_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    stage(run, "t-1-0", [(0, 0, 5), (0, 1, 5)])
    stage(run, "t-1-1", [(0, 2, None), (0, 3, None)], kind=pa.null())
    rows, *_ = published(run, Equal(("x",)))
    assert [row_id for row_id, _ in rows] == ["0#0", "0#2", "0#3"]
    with pytest.raises(ContractError, match="expected a published column 'y', found row_id, x"):
        published(run, Equal(("y",)))


def test_a_partition_without_a_row_has_no_duplicates(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    stage(run, "t-1-0", [], [(0, 0, QUARANTINED), (0, 1, FILTERED)], kind=pa.null())
    records = staged_parts.read_records(run.parts)
    merged = row_ranges.merge([record.ranges for record in records])
    assert drop_duplicates(run.parts, records, merged, [Equal(("x",))])[2] == 0
