"""Staged parts: what they settle is in them, and details count only with their part."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.storage.location import Location

MEASURES: staged_parts.Measures = {"infer": {"seconds": 1.5, "rows": 3, "bytes": 10}}


def stage(parts: Location, name: str, live: list[int], bad: dict[int, str]) -> None:
    """A part of unit 0 with these rows written and those quarantined."""
    table = pa.table({"x": pa.array(live, pa.int64()), "__unit": [0] * len(live), "__row": pa.array(live, pa.int64())})
    detail = {"uri": "u", "stage": "infer", "error_type": "ValueError", "__unit": 0}
    details = [detail | {"row_id": f"a#{n}", "error_message": reason, "__row": n} for n, reason in bad.items()]
    states = dict.fromkeys(live, blocks.LIVE) | dict.fromkeys(bad, blocks.QUARANTINED)
    ranges = [{"unit": 0, "start": n, "stop": n + 1, "state": state} for n, state in states.items()]
    errors = pa.Table.from_pylist(details, staged_parts.DETAILS)
    settled = pa.Table.from_pylist(ranges, row_ranges.RANGES)
    staged_parts.write_part(parts, name, table, errors, settled, MEASURES, "zstd", ["image"])


def read_errors(parts: Location) -> pa.Table:
    records = staged_parts.read_records(parts)
    return staged_parts.read_errors(parts, records, row_ranges.merge([record.ranges for record in records]))


@pytest.fixture
def parts(tmp_path: Path) -> Location:
    return Location(str(tmp_path)) / "parts"


def test_a_record_is_what_was_written(parts: Location):
    stage(parts, "20260101T000000-aaaaaa-000001", [0, 1], {2: "bad"})
    [record] = staged_parts.read_records(parts)
    assert (record.name, record.attempt) == ("20260101T000000-aaaaaa-000001", "20260101T000000-aaaaaa")
    assert (record.rows, record.stages, record.left_out) == (2, MEASURES, ("image",))
    assert record.ranges["state"].to_pylist() == [blocks.LIVE, blocks.QUARANTINED]
    assert record.schema.names == ["x"]
    assert record.size == next(file.size for file in parts.files((staged_parts.PART,)))


def test_a_footer_of_any_length_is_read_whole(parts: Location):
    numbers = pa.array([n * n * 7919 % 10**12 for n in range(30_000)], pa.int64())
    columns = {"unit": numbers, "start": [0] * 30_000, "stop": [1] * 30_000, "state": [blocks.LIVE] * 30_000}
    ranges, nothing = pa.table(columns, schema=row_ranges.RANGES), staged_parts.DETAILS.empty_table()
    assert len(row_ranges.encode(ranges)) > 2 * staged_parts.TAIL_BYTES
    staged_parts.write_part(parts, "a-1", pa.table({"x": [1]}), nothing, ranges, MEASURES, "zstd")
    [record] = staged_parts.read_records(parts)
    assert record.ranges.equals(ranges)
    assert record.schema.names == ["x"]


def test_records_come_by_name_without_what_is_unfinished_and_no_glob_for_parquet_finds_them(
    parts: Location, tmp_path: Path
):
    for name in ("b-1", "a-2", "a-1"):
        stage(parts, name, [0], {1: "bad"})
    (parts / "a-3.errors").write_bytes(b"torn")
    (parts / "a-4.part.0123.tmp").write_bytes(b"torn")
    assert [record.name for record in staged_parts.read_records(parts)] == ["a-1", "a-2", "b-1"]
    assert staged_parts.read_records(parts / "nowhere") == []
    assert list(tmp_path.rglob("*.parquet")) == []


def test_of_a_row_that_parts_settle_differently_only_the_first_part_s_word_stands(parts: Location):
    stage(parts, "a-1", [0, 1], {2: "first"})
    stage(parts, "a-2", [0], {1: "was written by the first", 2: "second", 3: "own"})
    stage(parts, "a-3", [0], {4: "has no part"})
    (parts / "a-3.part").remove()
    errors = read_errors(parts)
    assert errors.schema == staged_parts.QUARANTINE
    found = dict(zip(errors["row_id"].to_pylist(), errors["error_message"].to_pylist(), strict=True))
    assert found == {"a#2": "first", "a#3": "own"}


def test_no_errors_are_an_empty_table(parts: Location):
    stage(parts, "a-1", [0], {})
    assert read_errors(parts).equals(staged_parts.QUARANTINE.empty_table())


def test_a_part_of_another_format_is_refused(parts: Location):
    stage(parts, "a-1", [0], {})
    path = f"{parts.uri}/a-1.part"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, staged_parts.VERSION_KEY: b"999"}), path)
    with pytest.raises(ValueError, match="found b'999'"):
        staged_parts.read_records(parts)


def test_source_rows_are_in_the_footer_unless_one_has_several_rows(parts: Location):
    live = row_ranges.ranges_of(pa.table({"__unit": [0, 1, 1], "__row": [5, 0, 1], "__state": [blocks.LIVE] * 3}))
    nothing, columns = staged_parts.DETAILS.empty_table(), {"x": {"type": "int64", "nulls": 1}}
    for name, rows in (("a-1", [1, 0, 2]), ("a-2", [1, 0, 2, 2])):
        units, numbers = ([each[row] for row in rows] for each in ([1, 0, 1], [0, 5, 1]))
        table = pa.table({"x": rows, "__unit": units, "__row": numbers})
        staged_parts.write_part(parts, name, table, nothing, live, MEASURES, "zstd", columns=columns)
    whole, several = staged_parts.read_records(parts)
    assert (whole.is_row_by_row, whole.schema.names, whole.columns) == (True, ["x"], columns)
    assert (several.is_row_by_row, several.schema.names) == (False, ["x", "__unit", "__row"])
    assert several.statistics is None
    assert staged_parts.read_part(parts, whole).to_pydict() == {"x": [1, 0, 2], "__unit": [0, 1, 1], "__row": [5, 0, 1]}
    assert staged_parts.read_part(parts, whole, ["__row"]).to_pydict() == {"__row": [5, 0, 1]}
    assert staged_parts.read_part(parts, several, ["__row", "y"]).to_pydict() == {"__row": [5, 0, 1, 1]}


def test_a_part_of_rows_that_are_published_already_has_no_rows_to_read(parts: Location):
    schema = pa.schema([("x", pa.int64())])
    ranges = pa.Table.from_pylist([{"unit": 0, "start": 0, "stop": 9, "state": blocks.LIVE}], row_ranges.RANGES)
    staged_parts.write_part(parts, "a", schema.empty_table(), staged_parts.DETAILS.empty_table(), ranges, {}, "zstd")
    [record] = staged_parts.read_records(parts)
    assert staged_parts.read_part(parts, record).to_pydict() == {"x": [], "__unit": [], "__row": []}
