"""What a sink cannot take: a value costs its row while the rows stream, a column is refused before the first row."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows import blocks
from overnight.tasks.write.merge.output_schema import publishable
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.sinks.sql import SqlSink
from overnight.tasks.write.stream.rows_to_publish import rows_to_publish
from overnight.tasks.write.stream.staging import write_part
from tests.contracts.sinks.adapters import ADAPTERS
from tests.contracts.sinks.publications import columns_of, numbered, ready_to_publish, sink_of
from tests.tasks.blocks import source_block

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
    *((kind, TEXT, "'x_text': expected a text in UTF-8") for kind in ADAPTERS),
    *((kind, NESTED, "'x_list': expected a text in UTF-8") for kind in ADAPTERS),
    *((kind, TIME, "'x_time': expected a time") for kind in ADAPTERS),
    *((kind, FAR_DAY, "'x_day': expected a time in the years") for kind in ("jsonl", "sql", "iceberg")),
    *((kind, FAR_TIME, "'x_time': expected a time in the years") for kind in ("jsonl", "sql", "iceberg")),
    *((kind, FAR_IN_LIST, "'x_list': expected a time in the years") for kind in ("jsonl", "sql", "csv")),
    *(("images", columns, "'x_as_bytes': expected an image") for columns in (NO_IMAGE, NO_PIXELS)),
    *(("images", columns, "row_id: expected at most") for columns in (NAMES, DEEP_NAMES)),
]


@pytest.mark.parametrize(("kind", "columns", "reason"), UNFIT_ROWS)
def test_a_row_that_a_sink_cannot_take_is_quarantined_alone(
    kind: str, columns: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    table = pa.table({"row_id": ["a#0", "a#1", "a#2"], **columns_of(kind, [0, 1, 2]), **columns})
    rows, _, block = rows_to_publish(source_block(0, 0, table), numbered(tmp_path, 1), sink_of(kind, tmp_path))
    first, error, last = block["__error_message"].to_pylist()
    assert reason in error
    assert (first, last) == (None, None)
    assert rows["row_id"].to_pylist() == ["a#0", "a#2"]


UNFIT_COLUMNS = [
    *((kind, {"date": pa.int64()}, "set sink.partition_column") for kind in ADAPTERS),
    ("images", {"x_as_bytes_path": pa.string()}, "'x_as_bytes_path'"),
    ("delta", {"A": pa.int64(), "a": pa.int64()}, "'A' and 'a' differ only.*'a_2'"),
    ("delta", {"Date": pa.int64()}, "'date' and 'Date' differ only"),
    ("lance", {"a.b": pa.int64()}, "'a.b'.*found '.' in it.*'a_b'"),
    ("lance", {"": pa.int64()}, "found no name"),
    ("sql", {":x": pa.int64()}, "':x'.*found ':' in it.*to 'x'"),
    ("sql", {'the "id"': pa.int64()}, "found '\"' in it.*'the_id'"),
    ("sql", {"it's": pa.int64()}, "found \"'\" in it.*'it_s'"),
    ("sql", {"X": pa.int64(), "x": pa.int64()}, "'X' and 'x' differ only.*'x_2'"),
    ("sql", {"ROW_ID": pa.int64()}, "'row_id' and 'ROW_ID' differ only"),
]


@pytest.mark.parametrize(("kind", "columns", "words"), UNFIT_COLUMNS)
def test_a_column_that_a_sink_cannot_take_is_refused_with_what_to_do(
    kind: str, columns: dict[str, pa.DataType], words: str, tmp_path: Path
) -> None:
    fields = {"row_id": pa.string(), **({"x_as_bytes": pa.binary()} if kind == "images" else {}), **columns}
    with pytest.raises(ContractError, match=words):
        sink_of(kind, tmp_path).refuse_columns(numbered(tmp_path, 1), pa.schema(list(fields.items())))


def test_images_without_their_column_are_refused_with_those_there_are(tmp_path: Path) -> None:
    schema = pa.schema([("row_id", pa.string()), ("picture", pa.binary())])
    with pytest.raises(ContractError, match="'x_as_bytes', found row_id, picture"):
        sink_of("images", tmp_path).refuse_columns(numbered(tmp_path, 1), schema)


def test_names_that_a_database_can_hold_are_published(tmp_path: Path) -> None:
    names = ["total (EUR)", "größe", "100%", "a.b", "select"]
    sink_of("sql", tmp_path).refuse_columns(numbered(tmp_path, 1), pa.schema([(name, pa.int64()) for name in names]))


def test_postgresql_takes_no_null_characters_and_no_long_names(tmp_path: Path) -> None:
    sink = SqlSink(url="postgresql+psycopg://${PGUSER}@host/db", table="t")
    sink.take(pa.table({"x": ["a", None]}))
    with pytest.raises(RowError, match=r"'x': .* NUL"):
        sink.take(pa.table({"x": [{"deep": ["a\0"]}]}))
    sink.refuse_columns(numbered(tmp_path, 1), pa.schema([("x" * 63, pa.int64())]))
    with pytest.raises(ContractError, match="found 64 bytes, more than 63"):
        sink.refuse_columns(numbered(tmp_path, 1), pa.schema([("x" * 64, pa.int64())]))


def test_a_source_row_is_quarantined_with_all_that_was_made_of_it(tmp_path: Path) -> None:
    block = source_block(0, 0, pa.table({"row_id": ["a#0", "a#1"]}))
    made = pa.table({"row_id": ["a#0.0", "a#0.1", "a#1.0"], **TEXT})
    outputs = blocks.with_outputs(block, made, np.array([0, 0, 1]))
    rows, _, block = rows_to_publish(outputs, numbered(tmp_path, 1), sink_of("parquet", tmp_path))
    assert rows["row_id"].to_pylist() == ["a#1.0"]
    assert set(zip(block["__row"].to_pylist(), block["__state"].to_pylist(), strict=True)) == {
        (0, blocks.QUARANTINED),
        (1, blocks.LIVE),
    }


def test_objects_without_keys_are_json_text_whatever_other_parts_hold(tmp_path: Path) -> None:
    run, sink = numbered(tmp_path, 1), ParquetSink(path="-")
    several: list[list[Any]] = [[{}, None, {}], [{"a": 1}, None, {"a": None}]]
    for number, values in enumerate(several):
        names = [f"{number}#{row}" for row in range(3)]
        block = source_block(number, 0, pa.table({"row_id": names, "meta": pa.array(values)}))
        write_part(run, sink, f"{run.attempt}-{number:06d}", block)
    with ready_to_publish(run, sink) as (_, ready):
        assert ready.schema.field("meta").type == pa.string()
        [file] = ready.files
        texts = pq.read_table(str(file.place))["meta"].to_pylist()
    assert sorted(map(str, texts)) == sorted(["{}", "None", "{}", '{"a":1}', "None", '{"a":null}'])
    assert publishable(pa.table({"x": [[{}], [], None]}))["x"].to_pylist() == ["[{}]", "[]", None]
