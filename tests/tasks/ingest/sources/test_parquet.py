"""Parquet files as other people write them."""

import datetime
import decimal
import gzip
import io
import random
import re
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from overnight.tasks.ingest.formats.parquet_counts import slots
from overnight.tasks.ingest.formats.parquet_pages import values_in_pages
from overnight.tasks.ingest.formats.parquet_types import plain_kind
from overnight.tasks.ingest.listing import take_manifest
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources import parquet
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.rows import rebatch
from overnight.tasks.state.manifest import read_schema
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.output_schema import common_schema, conform
from tests.tasks.ingest.conftest import Read, overwritten, read_all

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


@pytest.mark.parametrize(("columns", "names"), [(["x", "day"], ["x", "day"]), (["day"], ["day"]), (["x"], ["x"])])
def test_columns_of_files_and_folders_are_chosen_alike(read: Reader, columns: list[str], names: list[str]):
    found = read(Parquet, {"day=1/a.parquet": file({"x": [1], "y": [2]})}, columns=columns)
    assert sorted(found.good["day=1/a.parquet#0"]) == sorted(["row_id", "uri", *names])
    found = read(Parquet, {"b.parquet": file({"x": [1, 2]})}, columns=columns)
    assert len(found.bad) == (0 if columns == ["x"] else 2)


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
    "column-twice": (
        file(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])),
        "expected each column once, found several named x",
    ),
    "encrypted": (WHOLE[:-4] + b"PARE", "expected a whole Parquet file: Could not read encrypted metadata"),
}


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


def varint(number: int) -> bytes:
    """The number as Thrift's compact protocol writes an integer of 64 bits."""
    left, found = (number << 1) ^ (number >> 63), b""
    while left > 127:
        found, left = found + bytes([left & 127 | 128]), left >> 7
    return found + bytes([left])


LISTS = {
    "lists": pa.list_(pa.int8()),
    "objects with lists": pa.struct([("a", pa.list_(pa.int8()))]),
    "maps": pa.map_(pa.string(), pa.int8()),
}


def with_footer(whole: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A Parquet file with another footer."""
    length = struct.unpack("<I", whole[-8:-4])[0]
    footer = change(whole[-8 - length : -8])
    return whole[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def declaring(rows: int, places: list[int]) -> bytes:
    """A file of 7,777 rows with `rows` in these places of the footer: 0 the file's, 1 the column's, 2 the group's."""
    schema = pa.schema([pa.field("x", pa.int8(), nullable=False)])
    whole = file(pa.table({"x": [1] * 7777}, schema), compression="none", store_schema=False, write_statistics=False)
    length = struct.unpack("<I", whole[-8:-4])[0]
    parts = whole[-8 - length : -8].split(varint(7777))
    assert len(parts) == 4
    numbers = [varint(rows if place in places else 7777) for place in range(3)]
    footer = parts[0] + b"".join(number + part for number, part in zip(numbers, parts[1:], strict=True))
    return whole[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


@pytest.mark.parametrize(
    ("rows", "places"),
    [
        *product([10**8, 10**15, 7778, 7776, 100, -25], [[0], [0, 2], [1], [2]]),
        *product([10**8, 10**15, 7778, -25], [[0, 1, 2]]),
    ],
)
def test_a_footer_that_promises_other_rows_than_there_are_costs_its_file_alone(read: Reader, rows: int, places: list):
    found = read(Parquet, {"a.parquet": file({"x": [1]}), "b.parquet": declaring(rows, places)})
    assert len(found.bad) <= 2
    reason = found.bad.get("b.parquet") or found.bad["b.parquet#7777"]
    assert "by the footer, found" in reason
    assert f"{rows:,}" in reason
    assert found.good["a.parquet#0"]["x"] == 1


def test_a_footer_that_leaves_its_sum_of_rows_at_0_costs_nothing(read: Reader):
    found = read(Parquet, {"a.parquet": declaring(0, [0])})
    assert (len(found.good), found.bad) == (7777, {})


@pytest.mark.parametrize("rows", [7776, 100])
def test_a_footer_that_promises_fewer_rows_than_the_pages_hold_loses_none_in_silence(read: Reader, rows: int):
    found = read(Parquet, {"a.parquet": file({"x": [1]}), "b.parquet": declaring(rows, [0, 1, 2])})
    assert list(found.good) == ["a.parquet#0"]
    assert set(found.bad.values()) == {
        f"expected {rows:,} rows in row group 0, by the footer, found pages of 7,777 values of the column x"
    }


WHOLES = st.lists(st.one_of(st.none(), st.integers(0, 9)))
ROWS = {
    "lists of lists": (pa.list_(pa.large_list(pa.int64())), st.lists(st.one_of(st.none(), WHOLES))),
    "vectors": (pa.list_(pa.int64(), 2), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    "lists of objects": (pa.list_(pa.struct([("a", pa.list_(pa.int64()))])), st.lists(st.builds(dict, a=WHOLES))),
    "maps of lists": (
        pa.map_(pa.string(), pa.list_(pa.int64())),
        st.dictionaries(st.text("ab"), WHOLES).map(lambda found: [*found.items()]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS.keys())
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_whole_file_of_lists_has_as_many_values_as_its_rows_show(case: tuple, data: st.DataObject) -> None:
    kind, value = case
    values = data.draw(st.lists(st.one_of(st.none(), value), min_size=1, max_size=20))
    whole = pq.ParquetFile(io.BytesIO(file(pa.table({"x": pa.array(values, kind)}))))
    shown = sum(slots(batch.column(0)) for batch in whole.iter_batches(7))
    assert shown == whole.metadata.row_group(0).column(0).num_values


@pytest.mark.parametrize("kind", LISTS.values(), ids=LISTS.keys())
@pytest.mark.parametrize("rows", [9, 7776])
def test_of_lists_too_a_footer_that_promises_fewer_rows_loses_none_in_silence(
    read: Reader, kind: pa.DataType, rows: int
):
    lists = pa.array([None, [], [1], [2, None, 3], [4]] * 1556, pa.list_(pa.int8()))[:7777]
    values = pa.StructArray.from_arrays([lists], ["a"]) if pa.types.is_struct(kind) else lists
    values = (
        pa.array([None if one is None else [(str(i), i) for i in one if i] for one in lists.to_pylist()], kind)
        if pa.types.is_map(kind)
        else values.cast(kind)
    )
    whole = file(pa.table({"x": values}), compression="none", store_schema=False, write_statistics=False)
    content = with_footer(whole, lambda footer: footer.replace(varint(7777), varint(rows)))
    assert content != whole
    found = read(Parquet, {"a.parquet": whole, "b.parquet": content})
    assert found.counts["a.parquet"] == 7777 <= len(found.good)
    told = {reason for name, reason in found.bad.items()}
    assert len(told) == 1
    assert "by the footer, found" in told.pop()


def test_a_column_without_lists_behind_many_with_tells_how_many_rows_there_are(read: Reader):
    columns = {**{f"x{i}": [[1, 2]] * 7777 for i in range(9)}, "n": [1] * 7777}
    whole = file(columns, compression="none", store_schema=False, write_statistics=False)

    def change(footer: bytes) -> bytes:
        first, *columns, last = footer.split(varint(7777))  # the file's rows come first, the group's last
        return first + varint(77) + varint(7777).join(columns) + varint(77) + last

    found = read(Parquet, {"a.parquet": with_footer(whole, change)})
    assert found.bad["a.parquet"].endswith("by the footer, found 7,777 values of the column n")


@pytest.mark.parametrize(
    "options",
    [
        {"data_page_version": "2.0"},
        {"data_page_size": 100, "write_batch_size": 10},
        {"use_dictionary": False, "compression": "none", "write_page_index": True},
        {"write_page_checksum": True, "compression": "gzip", "write_statistics": True},
    ],
)
def test_pages_are_counted_as_their_writers_write_them(read: Reader, options: dict):
    texts = [None if n % 3 else "x" * (n % 7) * 1000 for n in range(2000)]
    lists = [None, [], [1, 2, None]] * 666 + [[1], [2]]
    for columns in ({"x": texts}, {"x": lists}, {"x": [{"a": n} for n in range(2000)]}):
        content = file(columns, **options)
        opened, column = io.BytesIO(content), pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0)
        start = column.dictionary_page_offset or column.data_page_offset
        assert values_in_pages(opened, start, column.total_compressed_size) == column.num_values
        assert values_in_pages(opened, start + 1, column.total_compressed_size) is None
        assert values_in_pages(opened, start, column.total_compressed_size - 1) is None


@given(st.binary(max_size=300))
def test_bytes_that_are_no_headers_of_pages_tell_nothing(content: bytes) -> None:
    for start in range(0, len(content), 50):
        values_in_pages(io.BytesIO(content), start, len(content) - start)
    assert values_in_pages(io.BytesIO(b"\x1c" * 10_000), 0, 10_000) is None


def test_many_rows_in_few_bytes_are_rows_if_they_are_there(read: Reader):
    content = file({"x": [None] * 200_000}, compression="none")
    assert len(content) * 8 < 200_000
    assert read(Parquet, {"a.parquet": content}).counts == {"a.parquet": 200_000}


@pytest.mark.parametrize("size", [100, 2**20])
def test_rows_of_a_group_come_in_blocks_of_bounded_bytes(tmp_path: Path, size: int) -> None:
    count = 64 * 2**20 // max(size, 1_000)
    values = pa.array([{"bytes": b"x" * size, "path": "x"}] * count)
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    (tmp_path / "a.parquet").write_bytes(file({"id": range(count), "image": values}, **options))
    source = Parquet(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    pending = units.append_column("settled", pa.nulls(1, pa.list_(pa.int64()))).cast(PENDING)
    found = list(source.read(pending, source.common_schema(units)))
    assert pa.concat_tables(found)["id"].to_pylist() == list(range(count))
    assert len(found) == (9 if size == 100 else 5)
    assert max(block.nbytes for block in found) < 17 * 2**20


def test_a_dictionary_s_value_that_every_row_has_comes_in_blocks_of_bounded_bytes(read: Reader) -> None:
    texts = ["x" * 2**20] * 40
    found = read(Parquet, {"a.parquet": file({"x": texts + ["y"] * 20_000})})
    assert found.counts == {"a.parquet": 20_040}


def int96(*days: datetime.date | None, nanos: int = 1_000) -> bytes:
    """A file of INT96 times, each so many nanoseconds after midnight; pyarrow itself writes none after 2262."""
    start = datetime.date(2001, 2, 3)
    times = [datetime.datetime.combine(start + datetime.timedelta(i), datetime.time(4)) for i in range(len(days))]
    table = pa.table({"t": pa.array(times, pa.timestamp("ns"))})
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    content = file(table, use_deprecated_int96_timestamps=True, **options)
    for i, day in enumerate(days):
        old = struct.pack("<qi", 4 * 3600 * 10**9, start.toordinal() + i + 1_721_425)
        assert content.count(old) == 1
        content = content.replace(
            old, struct.pack("<qi", nanos, (day.toordinal() if day else 2**31 - 1_721_426) + 1_721_425)
        )
    return content


def test_times_of_any_year_are_read_as_they_are_written(read: Reader):
    days = [datetime.date(1, 1, 1), datetime.date(1676, 5, 6), datetime.date(2024, 1, 2), datetime.date(9999, 12, 31)]
    found = read(Parquet, {"a.parquet": int96(*days)})
    assert found.column("t") == [datetime.datetime.combine(day, datetime.time(0, 0, 0, 1)) for day in days]


def test_times_that_microseconds_do_not_hold_are_quarantined_alone(read: Reader):
    day = datetime.date(2024, 1, 2)
    found = read(Parquet, {"a.parquet": int96(day, None, day), "b.parquet": int96(day, nanos=1_001)})
    expected = "column t: expected a time in microseconds, found an INT96 time"
    assert found.bad["a.parquet#1"] == f"{expected} outside the years that 64 bits can represent"
    assert found.bad["b.parquet#0"] == f"{expected} with nanoseconds"
    assert list(found.good) == ["a.parquet#0", "a.parquet#2"]


FINE, COARSE = 1_577_836_800_000_000_001, 1_577_836_800_000_000_000  # nanoseconds
TIME = pa.timestamp("ns")
NESTED = {
    "an object": (pa.struct([("n", pa.int64()), ("t", TIME)]), lambda time: {"n": 1, "t": time}),
    "a list": (pa.list_(TIME), lambda time: [None, COARSE, time]),
    "a map": (pa.map_(pa.string(), TIME), lambda time: [("a", COARSE), ("b", time)]),
    "a list of objects": (pa.list_(pa.struct([("t", TIME)])), lambda time: [None, {"t": time}]),
    "an object with a list": (pa.struct([("t", pa.list_(TIME))]), lambda time: {"t": [time, None]}),
}


@pytest.mark.parametrize("case", NESTED.values(), ids=NESTED.keys())
def test_times_inside_others_that_microseconds_do_not_hold_are_quarantined_alone(read: Reader, case: tuple):
    kind, value = case
    times = [value(COARSE), None, value(FINE), value(None), value(COARSE)]
    content = file(pa.table({"x": pa.array(times, kind)}), use_deprecated_int96_timestamps=True)
    found = read(Parquet, {"a.parquet": content})
    assert list(found.good) == [f"a.parquet#{n}" for n in (0, 1, 3, 4)]
    assert re.fullmatch(r"column x(\.t)?: expected a time in .*with nanoseconds", found.bad["a.parquet#2"])


HALF_PAST = datetime.datetime(2024, 1, 1, 0, 30, tzinfo=datetime.UTC)
JOINED = {
    "whole numbers": (pa.array([1], pa.int32()), pa.array([2**40]), pa.int64(), [1, 2**40]),
    "whole numbers and fractions": (pa.array([1]), pa.array([2.5]), pa.float64(), [1.0, 2.5]),
    "zones": (
        pa.array([HALF_PAST], pa.timestamp("ms", "Europe/Berlin")),
        pa.array([HALF_PAST], pa.timestamp("us", "UTC")),
        pa.timestamp("us", "UTC"),
        [HALF_PAST, HALF_PAST],
    ),
    "nulls": (pa.nulls(1), pa.array(["x"]), pa.string(), [None, "x"]),
    "dictionaries": (pa.array(["x"]).dictionary_encode(), pa.array(["y"]), pa.string(), ["x", "y"]),
    "views": (pa.array(["x"], pa.string_view()), pa.array(["y"]), pa.string(), ["x", "y"]),
    "texts": (pa.array(["x"], pa.large_string()), pa.array(["y"]), pa.large_string(), ["x", "y"]),
    "decimals": (
        pa.array([decimal.Decimal("1.5")], pa.decimal128(4, 1)),
        pa.array([decimal.Decimal("2.25")], pa.decimal128(4, 2)),
        pa.decimal128(5, 2),
        [decimal.Decimal("1.50"), decimal.Decimal("2.25")],
    ),
    "objects": (
        pa.array([{"a": 1}], pa.struct([("a", pa.int32())])),
        pa.array([{"b": "x", "a": 2}]),
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": None}, {"a": 2, "b": "x"}],
    ),
    "lists": (pa.array([[1]], pa.list_(pa.int32())), pa.array([[2**40]]), pa.list_(pa.int64()), [[1], [2**40]]),
}


@pytest.mark.parametrize("case", JOINED.values(), ids=JOINED)
@pytest.mark.parametrize("is_turned", [False, True])
def test_types_that_differ_between_files_become_one_that_holds_all_values(tmp_path, case: tuple, is_turned: bool):
    first, second, kind, values = case
    for name, column in zip("ba" if is_turned else "ab", (first, second), strict=True):
        (tmp_path / f"{name}.parquet").write_bytes(file({"x": column}))
    source = Parquet(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    schema = source.common_schema(units)
    found = read_all(source, units, schema)
    assert found.column("x") == (values[::-1] if is_turned else values)
    if not is_turned:
        assert all(block.schema.field("x").type == kind for block in source.read(units, schema))


CLASHES = {
    "text and numbers": (pa.array(["s"]), pa.array([1]), "string", "int64"),
    "zoned and not": (
        pa.array([HALF_PAST], pa.timestamp("us", "UTC")),
        pa.array([HALF_PAST], pa.timestamp("us")),
        "timestamp[us, tz=UTC]",
        "timestamp[us]",
    ),
    "text and bytes": (pa.array(["s"]), pa.array([b"s"]), "string", "binary"),
    "decimals and floats": (
        pa.array([decimal.Decimal("1.5")]), pa.array([1.5]), "decimal128(2, 1)", "double",
    ),
    "truths and numbers": (pa.array([True]), pa.array([1]), "bool", "int64"),
    "lists and none": (pa.array([[1]]), pa.array([1]), "list<element: int64>", "int64"),
    "objects of other values": (pa.array([{"a": 1}]), pa.array([{"a": "x"}]), "struct<a: int64>", "struct<a: string>"),
}  # fmt: skip


@pytest.mark.parametrize("case", CLASHES.values(), ids=CLASHES)
def test_a_file_with_a_type_that_does_not_fit_is_quarantined_and_both_are_named(read: Reader, case: tuple):
    usual, odd, known, found_kind = case
    found = read(Parquet, {f"{i}.parquet": file({"id": [i], "x": odd if i == 0 else usual}) for i in range(3)})
    told = (
        f"column x: expected {known}, as in 1.parquet, found {found_kind} in 0.parquet; write the column with one type"
    )
    assert found.bad == {"0.parquet#0": told}
    assert found.column("id") == [1, 2]


def test_a_value_that_the_common_type_does_not_hold_is_quarantined_alone(read: Reader):
    found = read(Parquet, {"a.parquet": file({"x": [1.5]}), "b.parquet": file({"x": [2**53 + 1, 2]})})
    told = (
        "column x: expected double, as in a.parquet, found int64 in b.parquet, and a value that double cannot represent"
    )
    assert found.bad == {"b.parquet#0": told}
    assert found.column("x") == [1.5, 2.0]


def test_a_column_first_met_late_has_the_type_that_the_first_file_with_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "SAMPLE_FILES", 2)
    monkeypatch.setattr(take_manifest, "FILES_AT_ONCE", 2)
    late = [{}, {}, {}, {"y": pa.array([3], pa.int32())}, {"y": ["x"]}, {"y": [2**40]}]
    for i, columns in enumerate(late):
        (tmp_path / f"{i}.parquet").write_bytes(file({"x": [i], **columns}))
    source, place = Parquet(path=str(tmp_path)), Location(str(tmp_path / "manifest"))
    take_manifest.take_manifest(place, source, "all")
    units, schema = source.units(list_inputs(source, "all")), read_schema(place)
    assert schema is not None
    assert schema.field("y").type == pa.int64()
    found = read_all(source, units, schema)
    told = "column y: expected int64, as in 3.parquet, found string in 4.parquet; write the column with one type"
    assert found.bad == {"4.parquet#0": told}
    assert [row.get("y") for row in found.good.values()] == [None, None, None, 3, 2**40]


REQUIRED = pa.field("c", pa.int64(), nullable=False)
NESTED = {
    "an object": (pa.struct([REQUIRED]), {"c": 1}),
    "a list": (pa.list_(REQUIRED), [1]),
    "a list of objects": (pa.list_(pa.field("element", pa.struct([REQUIRED]), nullable=False)), [{"c": 1}]),
    "an object of an object": (pa.struct([pa.field("d", pa.struct([REQUIRED]), nullable=False)]), {"d": {"c": 1}}),
}


@pytest.mark.parametrize(("kind", "value"), NESTED.values(), ids=NESTED)
def test_what_one_file_requires_inside_a_column_may_be_null_elsewhere(tmp_path, kind: pa.DataType, value: object):
    (tmp_path / "a.parquet").write_bytes(
        file(pa.table({"s": pa.array([value], kind)}, pa.schema([pa.field("s", kind, False)])))
    )
    (tmp_path / "b.parquet").write_bytes(file({"y": ["b"]}))
    (tmp_path / "c.parquet").write_bytes(file({"s": pa.array([None], plain_kind(kind))}))
    source = Parquet(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    blocks = list(source.read(units, source.common_schema(units)))
    whole = conform(rebatch.joined(blocks), common_schema(block.schema for block in blocks))
    buffer = io.BytesIO()
    pq.write_table(whole, buffer)
    assert pq.read_table(buffer)["s"].to_pylist() == [value, None, None]


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string()), pa.struct([("inner", pa.string())])])
def test_a_text_that_is_no_utf8_costs_its_row_alone(read: Reader, kind: pa.DataType):
    offsets = pa.py_buffer(struct.pack("<4i", 0, 1, 2, 3))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xffb")])
    if pa.types.is_list(kind):
        texts = pa.ListArray.from_arrays([0, 1, 2, 3], texts)
    elif pa.types.is_struct(kind):
        texts = pa.StructArray.from_arrays([texts], ["inner"])
    found = read(Parquet, {"a.parquet": file(pa.table({"n": [1, 2, 3], "s": texts}))})
    assert found.column("n") == [1, 3]
    assert list(found.bad) == ["a.parquet#1"]
    assert re.match("column s: expected .*string.*, found another value: .*Invalid UTF8", found.bad["a.parquet#1"])
