"""Duplicates among staged rows: which rows of which part go, and what becomes of their source rows."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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
from tests.tasks.write.merge.parts import stage

EQUAL = Equal(("x",))


@pytest.fixture
def run(tmp_path: Any) -> Run:
    return make_run(tmp_path)


def published(run: Run, *rules: Any) -> tuple[list[Any], int, list[int]]:
    """The published rows (row_id, x), the number of duplicates, and that of source rows by their state."""
    records = staged_parts.read_records(run.parts)
    merged = row_ranges.merge([record.ranges for record in records])
    records, merged, count = drop_duplicates(run.parts, records, merged, rules)
    ready = merge(run.parts, records, merged, published_schema(records), run.sink, "f", "", "zstd", 2**20)
    found = [row for file in ready.files for row in pq.read_table(file.place.uri).to_pylist()]
    states = [row_ranges.rows_in_state(merged, state) for state in (LIVE, FILTERED, QUARANTINED)]
    return sorted(((row["row_id"], row["x"]) for row in found), key=str), count, states


def test_the_first_in_manifest_order_stays_whichever_part_has_it(run: Run) -> None:
    stage(run, "t-1-0", [(1, 0, 5), (1, 1, 6), (0, 3, 7)])
    stage(run, "t-1-1", [(0, 0, 6), (0, 1, 5.0), (0, 2, None), (1, 2, None)], [(1, 3, FILTERED)], pa.float64())
    rows = [("0#0", 6), ("0#1", 5), ("0#2", None), ("0#3", 7), ("1#2", None)]
    assert published(run, EQUAL) == (rows, 2, [5, 3, 0])


def test_a_source_row_is_filtered_if_all_rows_made_of_it_go(run: Run) -> None:
    stage(run, "t-1-0", [(0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 1, 1), (0, 2, 1), (0, 2, 3), (0, 2, 3)])
    assert published(run, EQUAL) == ([("0#0", 1), ("0#0", 2), ("0#2", 3)], 4, [2, 1, 0])


def test_rows_of_a_part_that_another_part_settles_are_not_compared(run: Run) -> None:
    stage(run, "t-1-0", [(0, 1, 5)], [(0, 0, QUARANTINED)])
    stage(run, "t-2-0", [(0, 0, 5), (0, 1, 5), (0, 2, 5), (0, 3, 6)])
    assert published(run, EQUAL) == ([("0#1", 5), ("0#3", 6)], 1, [2, 1, 1])


def test_a_second_rule_compares_what_the_first_one_left(run: Run) -> None:
    vectors = [[1.0, 0.0], [1.0, 0.01], [1.0, 0.0], [0.0, 1.0]]
    stage(run, "t-1-0", [(0, row, vector) for row, vector in enumerate(vectors)], kind=pa.list_(pa.float32(), 2))
    rows, count, _ = published(run, EQUAL, Near("x", 0.99))
    assert [row_id for row_id, _ in rows] == ["0#0", "0#3"]
    assert count == 2


def test_a_part_without_the_column_has_nulls_and_a_column_of_no_part_is_refused(run: Run) -> None:
    stage(run, "t-1-0", [(0, 0, 5), (0, 1, 5)])
    stage(run, "t-1-1", [(0, 2, None), (0, 3, None)], kind=pa.null())
    assert published(run, EQUAL) == ([("0#0", 5), ("0#2", None), ("0#3", None)], 1, [3, 1, 0])
    with pytest.raises(ContractError, match="'y', found row_id, x"):
        published(run, Equal(("y",)))


def test_a_partition_without_a_row_has_no_duplicates(run: Run) -> None:
    stage(run, "t-1-0", [], [(0, 0, QUARANTINED), (0, 1, FILTERED)], kind=pa.null())
    assert published(run, EQUAL) == ([], 0, [0, 1, 1])
