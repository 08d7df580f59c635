"""Parquet files as other people write them."""

import datetime
import decimal
import gzip
import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from tasks.errors import InputError
from tasks.ingest.listing import list_inputs
from tasks.ingest.parquet import Parquet
from tests.tasks.ingest.conftest import Read, assert_broken, overwritten, read_all

Reader = Callable[..., Read]


def file(columns: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns) if isinstance(columns, dict) else columns, buffer, **options)
    return buffer.getvalue()


def test_rows_are_numbered_through_the_file_and_its_row_groups_are_units(tmp_path):
    (tmp_path / "a.parquet").write_bytes(file({"x": range(10)}, row_group_size=4))
    source = Parquet(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    assert units["rows"].to_pylist() == [4, 4, 2]
    assert units["first_row"].to_pylist() == [0, 4, 8]
    found = read_all(source, units)
    assert [found.good[f"a.parquet#{n}"]["x"] for n in range(10)] == list(range(10))


def test_every_type_comes_as_it_is(read: Reader):
    values = {
        "decimal": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
        "zoned": pa.array([datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC")),
        "day": pa.array([datetime.date(2024, 1, 1), None]),
        "numbers": pa.array([[1, None], None], pa.list_(pa.int32())),
        "record": pa.array([{"a": 1, "b": ["x"]}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "nan": pa.array([float("nan"), None]),
        "bytes": pa.array([b"\xff", None]),
        "embedding": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        "nothing": pa.nulls(2),
    }
    found = read(Parquet, {"a.parquet": file(values)})
    for name, column in values.items():
        assert str([row[name] for row in found.good.values()]) == str(column.to_pylist())


def test_a_dictionary_in_one_file_and_plain_text_in_the_next_are_one_type(read: Reader):
    text = pa.array(["x", "y", "x"])
    found = read(Parquet, {"a.parquet": file({"t": text}), "b.parquet": file({"t": text.dictionary_encode()})})
    assert found.column("t") == ["x", "y", "x"] * 2
    # Alike in type too, or the blocks could not be joined:
    source = Parquet(path=found.good["a.parquet#0"]["uri"].rsplit("/", 1)[0])
    units = source.units(list_inputs(source, "all"))
    assert {block.schema.field("t").type for block in source.read(units, None)} == {pa.string()}


def test_files_without_rows_are_no_units_and_empty_row_groups_neither(read: Reader):
    assert read(Parquet, {"a.parquet": file({"x": []}), "b.parquet": file({"x": [1]})}).counts == {"b.parquet": 1}


def test_only_the_named_columns_are_read(read: Reader):
    found = read(Parquet, {"a.parquet": file({"x": [1], "y": [2]})}, columns=["y"])
    assert set(found.good["a.parquet#0"]) == {"row_id", "uri", "y"}
    found = read(Parquet, {"a.parquet": file({"x": [1, 2], "y": [2, 3]})}, columns=["z"])
    assert set(found.bad) == {"a.parquet#0", "a.parquet#1"}
    assert "expected column z, found x, y" in found.bad["a.parquet#1"]


def test_columns_with_overnight_s_names_are_renamed_and_hidden_names_refused(read: Reader):
    found = read(Parquet, {"a.parquet": file({"row_id": ["mine"], "uri": [None]})})
    assert found.good["a.parquet#0"]["source_row_id"] == "mine"
    with pytest.raises(InputError, match="__unit is reserved"):
        read(Parquet, {"a.parquet": file({"__unit": [1]})})


WHOLE = file({"x": [f"{i:040d}" for i in range(300)]}, row_group_size=100, compression="zstd")
ARROW = io.BytesIO()
feather.write_feather(pa.table({"x": ["a"]}), ARROW)
NO_PARQUET = {
    "empty": (b"", "expected a whole Parquet file: Parquet file size is 0 bytes"),
    "begun": (b"PAR1", "Parquet file size is 4 bytes, smaller than the minimum file footer"),
    "text": (b"no parquet at all", "expected a whole Parquet file: Parquet magic bytes not found in footer"),
    "page": (b"<!DOCTYPE html><title>404</title>", "magic bytes not found in footer"),
    "arrow": (ARROW.getvalue(), "magic bytes not found in footer"),
    "random": (random.Random(0).randbytes(3000), "magic bytes not found in footer"),
    "cut": (WHOLE[:-3], "magic bytes not found in footer"),
    "half": (WHOLE[: len(WHOLE) // 2], "magic bytes not found in footer"),
    "grown": (WHOLE + b"more", "magic bytes not found in footer"),
    "packed": (gzip.compress(WHOLE), "magic bytes not found in footer"),
    "footer-too-long": (overwritten(WHOLE, -8, -5), "smaller than the size reported by footer's"),
    "footer-changed": (overwritten(WHOLE, -300, -8), "expected a whole Parquet file: Couldn't deserialize thrift"),
    "encrypted": (WHOLE[:-4] + b"PARE", "expected a whole Parquet file: Could not read encrypted metadata"),
}


def test_a_file_that_cannot_be_opened_is_one_bad_row_with_the_reason(read: Reader):
    cases = {f"{name}.parquet": (content, 0, reason) for name, (content, reason) in NO_PARQUET.items()}
    found = read(Parquet, {**{name: content for name, (content, *_) in cases.items()}, "a.parq": file({"x": [1, 2]})})
    assert_broken(found, cases)
    assert set(found.bad) == set(cases)
    assert found.column("x") == [1, 2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"compression": "zstd"}, "Couldn't deserialize thrift"),
        ({"use_dictionary": False, "compression": "none"}, "Invalid or truncated PLAIN-encoded BYTE_ARRAY data"),
        ({"write_page_checksum": True, "use_dictionary": False}, "CRC checksum verification failed"),
    ],
    ids=["a page's header", "its values", "its values, with a check sum"],
)
def test_a_damaged_row_group_costs_its_rows_and_no_others(read: Reader, options: dict, reason: str):
    content = file({"x": [f"{i:040d}" for i in range(300)]}, row_group_size=100, **options)
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(1).column(0)
    start = group.dictionary_page_offset or group.data_page_offset
    stop = start + group.total_compressed_size
    content = overwritten(content, start if "Couldn't" in reason else stop - 90, stop)
    found = read(Parquet, {"a.parquet": content})
    assert set(found.bad) == {f"a.parquet#{n}" for n in range(100, 200)}
    [told] = set(found.bad.values())
    assert told.startswith("expected row group 1 of a Parquet file as it was written: ")
    assert reason in told
    assert found.column("x") == [f"{n:040d}" for n in (*range(100), *range(200, 300))]


def test_a_file_replaced_by_another_since_it_was_listed_loses_the_rows_that_were_listed(tmp_path):
    path = tmp_path / "a.parquet"
    for listed, now in ((5, 3), (3, 5), (5, 0)):
        path.write_bytes(file({"x": range(listed)}))
        source = Parquet(path=str(tmp_path))
        units = source.units(list_inputs(source, "all"))
        path.write_bytes(file({"x": range(now)}))
        found = read_all(source, units)
        assert (len(found.good), len(found.bad)) == (0, listed)


def test_a_file_that_was_damaged_when_listed_stays_one_bad_row_when_it_is_whole_again(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"half")
    source = Parquet(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    (tmp_path / "a.parquet").write_bytes(file({"x": range(5)}))
    found = read_all(source, units)
    assert (list(found.bad), found.good) == (["a.parquet"], {})


def test_many_lost_rows_come_in_blocks_of_bounded_size(tmp_path):
    (tmp_path / "a.parquet").write_bytes(file({"x": range(20_000)}))
    source = Parquet(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    (tmp_path / "a.parquet").unlink()
    assert [len(block) for block in source.read(units, None)] == [8192, 8192, 3616]
