"""Parts become files of about the wanted size, with exactly the rows and columns that are to be published."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.blocks import FILTERED
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.write.checks.column_statistics import describe
from overnight.tasks.write.merge.known_types import with_known_types
from overnight.tasks.write.merge.merge_parts import OutputFormat, Prepared, merge, published_schema
from tests.tasks.runs import make_run
from tests.tasks.write.merge.parts import stage, stage_as_before


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


def merged(run: Run, target_bytes: int = 2**20, schema: pa.Schema | None = None, **settings: Any) -> Prepared:
    records = staged_parts.read_records(run.parts)
    ranges = row_ranges.merge([record.ranges for record in records])
    schema = schema or published_schema(records)
    return merge(run.parts, records, ranges, schema, run.sink, "f-", ".tmp", "zstd", target_bytes, **settings)


def published_as_they_are(run: Run, prepared: Prepared) -> list[str]:
    """The parts that are files of the publish, by their content."""
    parts = {(run.parts / f"{name}.part").read_bytes(): name for name in ("a", "b", "c")}
    return [parts.get(file.place.read_bytes(), "") for file in prepared.files]


def rows_of(prepared: Prepared) -> list[dict[str, Any]]:
    return [row for file in prepared.files for row in pq.read_table(str(file.place)).to_pylist()]


def test_a_row_that_two_attempts_staged_is_the_first_one_s_whole_and_filtered_rows_are_not_published(run: Run) -> None:
    stage(run, "a", [(0, 0, 1), (0, 1, 2), (0, 1, 3)], [(0, 2, FILTERED)])
    stage(run, "b", [(0, 1, 20), (0, 3, 4), (0, 3, 5)])
    prepared = merged(run)
    found = [(row["row_id"], row["x"]) for row in rows_of(prepared)]
    assert found == [("0#0", 1), ("0#1", 2), ("0#1", 3), ("0#3", 4), ("0#3", 5)]
    assert (prepared.rows, prepared.schema.names) == (5, ["row_id", "x"])


def test_files_have_the_names_sizes_and_statistics_that_the_receipt_tells(run: Run) -> None:
    stage(run, "a", [(0, row, row) for row in range(5)])
    [file] = merged(run).files
    assert (file.name, file.place.name, file.rows) == ("f-00000.parquet", "f-00000.parquet.tmp", 5)
    assert file.bytes == Path(str(file.place)).stat().st_size
    assert {name: found["nulls"] for name, found in file.columns.items()} == {"x": 0}


def test_parts_are_joined_up_to_the_wanted_bytes_and_parts_without_live_rows_make_no_file(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    class Here:
        """Runs the work of several files in this process, in place of Ray."""

        def __init__(self, work: Callable[..., Any]) -> None:
            self.remote = work

    monkeypatch.setattr(ray, "remote", lambda **settings: Here)
    monkeypatch.setattr(ray, "get", lambda results: results)
    for number in range(3):
        stage(run, f"a{number}", [(number, row, row) for row in range(4)])
        stage_as_before(run, f"a{number}")
    stage(run, "b", [], [(7, 0, FILTERED)])
    size = staged_parts.read_records(run.parts)[0].size
    assert [file.rows for file in merged(run, 3 * size).files] == [12]
    two = merged(run, 2 * size)
    assert [(file.name, file.rows) for file in two.files] == [("f-00000.parquet", 8), ("f-00001.parquet", 4)]
    assert [file.rows for file in merged(run, 1).files] == [4, 4, 4]


def test_without_live_rows_there_is_no_file(run: Run) -> None:
    stage(run, "b", [], [(7, 0, FILTERED)])
    assert (merged(run).files, merged(run).rows, merged(run).columns) == ([], 0, {})


def test_columns_of_other_parts_are_null_constants_are_added_and_the_schema_decides_the_types(run: Run) -> None:
    stage(run, "a", [(0, 0, 1), (0, 1, 2)])
    schema = pa.schema([("x", pa.float64()), ("y", pa.string()), ("row_id", pa.string())])
    prepared = merged(run, schema=schema, constants={"date": pa.scalar("2026-01-02")})
    rows = [{"x": 1.0, "y": None, "row_id": "0#0"}, {"x": 2.0, "y": None, "row_id": "0#1"}]
    assert rows_of(prepared) == [row | {"date": "2026-01-02"} for row in rows]


def test_the_same_rows_are_written_in_another_format_beside(run: Run, tmp_path: Path) -> None:
    @contextlib.contextmanager
    def opened(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
        file.write(f"{schema.names}\n".encode())
        yield lambda table: file.write(f"{table['x'].to_pylist()}\n".encode()) and None

    stage(run, "a", [(0, 0, 1), (0, 1, 2)])
    prepared = merged(run, form=OutputFormat(Location(str(tmp_path / "csv")), ".csv", opened))
    assert [file.name for file in prepared.files] == ["f-00000.csv"]
    assert (tmp_path / "csv/f-00000.csv.part").read_text() == "['row_id', 'x']\n[1, 2]\n"
    assert [row["x"] for row in rows_of(prepared)] == [1, 2]


def test_a_function_may_move_values_of_the_rows_to_other_files(run: Run) -> None:
    moved: list[tuple[str, list[int]]] = []

    def beside(table: pa.Table, name: str) -> pa.Table:
        if len(table):
            moved.append((name, table["x"].to_pylist()))
        return table.drop_columns(["x"])

    stage(run, "a", [(0, 0, 1), (0, 1, 2)])
    assert rows_of(merged(run, beside=beside)) == [{"row_id": "0#0"}, {"row_id": "0#1"}]
    assert moved == [("f-00000", [1, 2])]


def test_parts_whose_columns_have_no_type_in_common_are_refused(run: Run) -> None:
    stage(run, "a", [(0, 0, 1)])
    stage(run, "b", [(1, 0, "text")])
    with pytest.raises(ContractError):
        published_schema(staged_parts.read_records(run.parts))


LARGE = [(0, row, row * 7919 % 1000) for row in range(2_000)]


def test_a_part_of_the_right_size_is_published_as_it_is_and_small_ones_are_merged(run: Run) -> None:
    stage(run, "a", LARGE[:1000], [(0, 5_000, FILTERED)])
    stage(run, "b", LARGE[1000:1010])
    stage(run, "c", LARGE[1020:])
    stage(run, "d", LARGE[1010:1020])
    sizes = [record.size for record in staged_parts.read_records(run.parts)]
    prepared = merged(run, 8 * min(sizes[0], sizes[2]))
    assert published_as_they_are(run, prepared) == ["a", "", "c"]
    assert [file.name for file in prepared.files] == ["f-00000.parquet", "f-00001.parquet", "f-00002.parquet"]
    rows = rows_of(prepared)
    assert [row["x"] for row in rows] == [value for _, _, value in LARGE]
    for name in ("a", "b", "c", "d"):
        stage_as_before(run, name)
    as_before = merged(run)
    assert published_as_they_are(run, as_before) == [""]
    assert sorted(rows_of(as_before), key=str) == sorted(rows, key=str)
    assert as_before.schema == prepared.schema
    before, after = (each.columns["x"] for each in (as_before, prepared))
    assert before.pop("standard_deviation") == pytest.approx(after.pop("standard_deviation"))
    assert before == after


def test_a_part_alone_is_published_as_it_is_whatever_its_size(run: Run) -> None:
    stage(run, "a", LARGE[3:1:-1])
    [file] = (prepared := merged(run)).files
    assert os.path.samefile(file.place.uri, f"{run.parts.uri}/a.part")
    assert [row["row_id"] for row in rows_of(prepared)] == ["0#3", "0#2"]
    assert file.columns == describe(pa.Table.from_pylist(rows_of(prepared)))
    assert file.bytes == os.path.getsize(file.place.uri)


@pytest.mark.parametrize("case", ["taken by another part", "dropped", "several rows", "type", "compression", "extras"])
def test_a_part_that_is_not_the_file_to_publish_is_merged(run: Run, case: str) -> None:
    several = [(0, 7, 8), (0, 7, 9)] if case == "several rows" else []
    stage(run, "c", [*LARGE[:4], *several], compression="none" if case == "compression" else "zstd")
    if case == "taken by another part":
        stage(run, "a", [], [(0, 1, FILTERED)])
    records = staged_parts.read_records(run.parts)
    ranges = row_ranges.merge([record.ranges for record in records])
    schema = published_schema(records)
    if case == "dropped":
        records = [replace(records[0], dropped=np.array([False, True, False, False]))]
    if case == "type":
        schema = pa.schema([("row_id", pa.string()), ("x", pa.float64())])
    constants = {"day": pa.scalar(1)} if case == "extras" else {}
    [file] = merge(
        run.parts, records, ranges, schema, run.sink, "f-", "", "zstd", 1, constants=constants
    ).files  # fmt: skip
    assert file.place.read_bytes() != (run.parts / "c.part").read_bytes()
    assert pq.read_schema(file.place.uri).names == ["row_id", "x", *constants]
    is_less = case in ("taken by another part", "dropped")
    assert pq.read_table(file.place.uri)["x"].to_pylist() == [
        value for _, row, value in [*LARGE[:4], *several] if not is_less or row != 1
    ]


def test_a_column_of_nulls_that_gets_a_type_from_elsewhere_is_merged(run: Run) -> None:
    stage(run, "a", [(0, 0, None)])
    records, known = staged_parts.read_records(run.parts), pa.schema([("x", pa.float32())])
    records = with_known_types(records, [known], run)
    ranges = row_ranges.merge([record.ranges for record in records])
    schema = published_schema(records)
    [file] = merge(run.parts, records, ranges, schema, run.sink, "f-", "", "zstd", 1).files
    assert pq.read_schema(file.place.uri).field("x").type == pa.float32()


def test_the_receipt_has_the_types_that_the_file_has(run: Run) -> None:
    stage(run, "a", [(0, 0, 0)], kind=pa.timestamp("s"))
    [file] = merged(run).files
    assert file.columns["x"]["type"] == str(pq.read_schema(file.place.uri).field("x").type) == "timestamp[ms]"
