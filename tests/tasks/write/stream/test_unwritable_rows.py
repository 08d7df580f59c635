"""What a sink cannot take: a value costs its row while the rows stream, a column is refused before the first row."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.write.kinds import AnySink
from overnight.tasks.write.merge.output_schema import publishable
from overnight.tasks.write.sinks.sql import SqlSink
from overnight.tasks.write.stream.staging_datasink import StagingDatasink
from tests.contracts.sinks.publications import (
    columns_of,
    holding,
    numbered,
    prepared,
    publish,
    receipt_of,
    records_of,
    sink_of,
)
from tests.tasks.blocks import source_block

KINDS = ["parquet", "jsonl", "csv", "images", "delta", "iceberg", "lance", "sql"]
FAR = 2**40  # seconds after 1970: beyond the year 9999
TOO_FAR = 2**60  # more than Parquet holds


def broken_text() -> pa.Array:
    """A good text, one that is no UTF-8, and another good one."""
    ends = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 3, [None, ends, pa.py_buffer(b"a\xffb")])


TEXT = {"x_text": broken_text()}
NESTED = {"x_list": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), broken_text())}
TIME = {"x_time": pa.array([0, TOO_FAR, 1], pa.timestamp("s"))}
FAR_DAY = {"x_day": pa.array([0, 2**30, 1], pa.date32())}
FAR_TIME = {"x_time": pa.array([0, FAR, None], pa.timestamp("s", "UTC"))}
FAR_IN_LIST = {"x_list": pa.array([[0], [1, FAR], []], pa.list_(pa.timestamp("s")))}
NO_IMAGE = {"x_as_bytes": pa.array([None, b"no image", None], pa.binary())}
NO_PIXELS = {"x_as_bytes": pa.array([None, [[0.5]], None], pa.list_(pa.list_(pa.float32())))}
NAMES = {"row_id": ["a#0", "a" * 300, "a#2"]}
DEEP_NAMES = {"row_id": ["a#0", "folder/" * 200, "a#2"]}

UNFIT_ROWS = [
    *[(kind, columns, reason) for kind in KINDS for columns, reason in (
        (TEXT, "column 'x_text': expected a text in UTF-8"),
        (NESTED, "column 'x_list': expected a text in UTF-8"),
        (TIME, "column 'x_time': expected a time"),
    )],
    *[("jsonl", columns, "expected a time in the years 1 to 9999") for columns in (FAR_DAY, FAR_TIME, FAR_IN_LIST)],
    *[("sql", columns, "expected a time in the years 1 to 9999") for columns in (FAR_DAY, FAR_TIME, FAR_IN_LIST)],
    *[("iceberg", columns, "expected a time in the years 1 to 9999") for columns in (FAR_DAY, FAR_TIME)],
    ("csv", FAR_IN_LIST, "column 'x_list': expected a time in the years 1 to 9999"),
    *[("images", columns, "column 'x_as_bytes': expected an image") for columns in (NO_IMAGE, NO_PIXELS)],
    *[("images", columns, "row_id: expected at most") for columns in (NAMES, DEEP_NAMES)],
]  # fmt: skip


@pytest.mark.parametrize(("kind", "columns", "reason"), UNFIT_ROWS)
def test_a_row_that_a_sink_cannot_take_is_quarantined_and_the_others_are_published(
    kind: str, columns: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    run, sink = numbered(tmp_path, 1), sink_of(kind, tmp_path)
    table = pa.table({"row_id": ["a#0", "a#1", "a#2"], **columns_of(kind, [0, 1, 2]), **columns})
    StagingDatasink(run, "zstd", 10, sink).write([source_block(0, 0, table)], SimpleNamespace(task_idx=0))
    records, merged = records_of(run)
    assert [range_["state"] for range_ in merged.to_pylist()] == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    [error] = staged_parts.read_errors(run.parts, records, merged).to_pylist()
    assert error["stage"] == "write"
    assert error["error_message"].startswith(reason) or reason in error["error_message"]
    with holding(run) as held, prepared(held, sink, records, row_ranges.merge([r.ranges for r in records])) as ready:
        publish(held, sink, ready, staged_parts.read_errors(run.parts, records, merged), receipt_of(run, sink, ready))
        assert ready.rows == 2


INTERVAL = pa.month_day_nano_interval()
UNFIT_COLUMNS = [
    *[(kind, schema, words) for kind in KINDS for schema, words in (
        ({"date": pa.int64()}, "set sink.partition_column"),
        ({"wait": INTERVAL}, "column 'wait': Parquet.*Return another type"),
        ({"waits": pa.list_(INTERVAL)}, "column 'waits': Parquet"),
    )],
    ("images", {"x_as_bytes_path": pa.string()}, "column 'x_as_bytes_path'.*Rename"),
    ("delta", {"A": pa.int64(), "a": pa.int64()}, "'A' and 'a' differ only.*'a_2'"),
    ("delta", {"Date": pa.int64()}, "'date' and 'Date' differ only"),
    ("delta", {"money": pa.decimal256(60, 2)}, "column 'money'.*Return another type"),
    ("iceberg", {"money": pa.decimal256(60, 2)}, "column 'money'.*Return another type"),
    ("lance", {"a.b": pa.int64()}, "column 'a.b'.*found '.' in it.*for example to 'a_b'"),
    ("lance", {"": pa.int64()}, "found no name"),
    ("sql", {":x": pa.int64()}, "column ':x'.*found ':' in it.*for example to 'x'"),
    ("sql", {'the "id"': pa.int64()}, "found '\"' in it.*for example to 'the_id'"),
    ("sql", {"it's": pa.int64()}, 'found "\'" in it.*for example to \'it_s\''),
    ("sql", {"X": pa.int64(), "x": pa.int64()}, "'X' and 'x' differ only.*'x_2'"),
    ("sql", {"ROW_ID": pa.int64()}, "'row_id' and 'ROW_ID' differ only"),
]  # fmt: skip


@pytest.mark.parametrize("kind", sorted(leaf.model_fields["kind"].default for leaf in get_args(get_args(AnySink)[0])))
def test_every_sink_has_three_rows_and_two_columns_that_it_cannot_take(kind: str) -> None:
    assert sum(case[0] == kind for case in UNFIT_ROWS) >= 3
    assert sum(case[0] == kind for case in UNFIT_COLUMNS) >= 2


@pytest.mark.parametrize(("kind", "columns", "words"), UNFIT_COLUMNS)
def test_a_column_that_a_sink_cannot_take_is_refused_with_what_to_do(
    kind: str, columns: dict[str, pa.DataType], words: str, tmp_path: Path
) -> None:
    fields = {"row_id": pa.string(), **({"x_as_bytes": pa.binary()} if kind == "images" else {}), **columns}
    with pytest.raises(ContractError, match=words):
        sink_of(kind, tmp_path).refuse_columns(numbered(tmp_path, 1), pa.schema(list(fields.items())))


def test_images_without_their_column_are_refused_with_those_there_are(tmp_path: Path) -> None:
    schema = pa.schema([("row_id", pa.string()), ("picture", pa.binary())])
    with pytest.raises(ContractError, match=r"sink\.column: expected a column 'x_as_bytes', found row_id, picture"):
        sink_of("images", tmp_path).refuse_columns(numbered(tmp_path, 1), schema)


def test_postgresql_takes_no_null_characters_and_no_long_names(tmp_path: Path) -> None:
    sink = SqlSink(url="postgresql+psycopg://${PGUSER}@host/db", table="t")
    sink.take(pa.table({"x": ["a", None]}))
    with pytest.raises(Exception, match="column 'x': expected a text without the character NUL"):
        sink.take(pa.table({"x": [{"deep": ["a\0"]}]}))
    with pytest.raises(ContractError, match="found 64 bytes, more than 63"):
        sink.refuse_columns(numbered(tmp_path, 1), pa.schema([("x" * 64, pa.int64())]))


def test_names_that_a_database_can_hold_are_published(tmp_path: Path) -> None:
    sink = sink_of("sql", tmp_path)
    names = ["total (EUR)", "größe", "100%", "a.b", "select"]
    sink.refuse_columns(numbered(tmp_path, 1), pa.schema([(name, pa.int64()) for name in names]))


def test_a_source_row_is_quarantined_with_all_that_was_made_of_it(tmp_path: Path) -> None:
    block = source_block(0, 0, pa.table({"row_id": ["a#0", "a#1"]}))
    made = pa.table({"row_id": ["a#0.0", "a#0.1", "a#1.0"], **TEXT})
    run = numbered(tmp_path, 1)
    StagingDatasink(run, "zstd", 10, sink_of("parquet", "-")).write(
        [blocks.with_outputs(block, made, np.array([0, 0, 1]))], SimpleNamespace(task_idx=0)
    )
    records, merged = records_of(run)
    assert [range_["state"] for range_ in merged.to_pylist()] == [blocks.QUARANTINED, blocks.LIVE]
    with (run.parts / f"{records[0].name}.part").open() as file:
        assert pq.read_table(file)["row_id"].to_pylist() == ["a#1.0"]


def test_objects_without_keys_are_json_text_whatever_other_parts_hold(tmp_path: Path) -> None:
    run, sink = numbered(tmp_path, 1), sink_of("parquet", tmp_path)
    several: list[list[Any]] = [[{}, None, {}], [{"a": 1}, None, {"a": None}], [[{}], [], None]]
    for number, values in enumerate(several[:2]):
        names = [f"{number}#{row}" for row in range(3)]
        block = source_block(number, 0, pa.table({"row_id": names, "meta": pa.array(values)}))
        StagingDatasink(run, "zstd", 10, sink).write([block], SimpleNamespace(task_idx=number))
    with holding(run) as held, prepared(held, sink, *records_of(run)) as ready:
        assert ready.schema.field("meta").type == pa.string()
        found = [value for file in ready.files for value in pq.read_table(str(file.place))["meta"].to_pylist()]
    assert sorted(map(str, found)) == sorted(["{}", "None", "{}", '{"a":1}', "None", '{"a":null}'])
    assert publishable(pa.table({"x": pa.array(several[2])}))["x"].to_pylist() == ["[{}]", "[]", None]
