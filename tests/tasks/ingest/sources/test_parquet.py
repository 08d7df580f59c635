"""Parquet files as other people write them."""

import datetime
import decimal
import io
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

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


@pytest.mark.parametrize("columns", [["x", "day"], ["day"], ["x"]])
def test_columns_of_files_and_folders_are_chosen_alike(read: Reader, columns: list[str]):
    found = read(Parquet, {"day=1/a.parquet": file({"x": [1], "y": [2]})}, columns=columns)
    assert set(found.good["day=1/a.parquet#0"]) == {"row_id", "uri", *columns}
    found = read(Parquet, {"b.parquet": file({"x": [1, 2]})}, columns=columns)
    assert len(found.bad) == (0 if columns == ["x"] else 2)


WHOLE = file({"x": [f"{i:040d}" for i in range(300)]}, row_group_size=100, compression="zstd")
TWINS = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
ARROW = io.BytesIO()
feather.write_feather(pa.table({"x": ["a"]}), ARROW)
HOSTILE = {
    "empty.parquet": (b"", 0, "expected a whole Parquet file: Parquet file size is 0 bytes"),
    "text.parquet": (b"no parquet at all", 0, "expected a whole Parquet file: Parquet magic bytes not found in footer"),
    "arrow.parquet": (ARROW.getvalue(), 0, "magic bytes not found in footer"),
    "footer-too-long.parquet": (overwritten(WHOLE, -8, -5), 0, "smaller than the size reported by footer's"),
    "footer-changed.parquet": (overwritten(WHOLE, -300, -8), 0, "whole Parquet file: Couldn't deserialize thrift"),
    "column-twice.parquet": (file(TWINS), 0, "expected each column once, found several named x"),
    "encrypted.parquet": (WHOLE[:-4] + b"PARE", 0, "expected a whole Parquet file: Could not read encrypted metadata"),
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


def varint(number: int) -> bytes:
    """The number as Thrift's compact protocol writes an integer of 64 bits."""
    left, found = (number << 1) ^ (number >> 63), b""
    while left > 127:
        found, left = found + bytes([left & 127 | 128]), left >> 7
    return found + bytes([left])


def with_footer(whole: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A Parquet file with another footer."""
    length = struct.unpack("<I", whole[-8:-4])[0]
    footer = change(whole[-8 - length : -8])
    return whole[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def declaring(rows: int, places: list[int]) -> bytes:
    """A file of 7,777 rows with `rows` in these places of the footer: 0 the file's, 1 the column's, 2 the group's."""
    schema = pa.schema([pa.field("x", pa.int8(), nullable=False)])
    whole = file(pa.table({"x": [1] * 7777}, schema), compression="none", store_schema=False, write_statistics=False)

    def change(footer: bytes) -> bytes:
        first, *parts = footer.split(varint(7777))
        numbers = [varint(rows if place in places else 7777) for place in range(3)]
        return first + b"".join(number + part for number, part in zip(numbers, parts, strict=True))

    return with_footer(whole, change)


@pytest.mark.parametrize("rows", [10**15, 7778, 7776, -25])
@pytest.mark.parametrize("places", [[0], [0, 2], [1], [2]], ids=str)
def test_a_footer_that_promises_other_rows_than_there_are_costs_its_file_alone(read: Reader, rows: int, places: list):
    found = read(Parquet, {"a.parquet": file({"x": [1]}), "b.parquet": declaring(rows, places)})
    assert found.good["a.parquet#0"]["x"] == 1
    [reason] = {told for name, told in found.bad.items()}
    assert "by the footer, found" in reason
    assert f"{rows:,}" in reason


def test_a_footer_that_leaves_its_sum_of_rows_at_0_and_many_rows_in_few_bytes_cost_nothing(read: Reader):
    small = file({"x": [None] * 50_000}, compression="none")
    assert len(small) * 8 < 50_000
    found = read(Parquet, {"a.parquet": declaring(0, [0]), "b.parquet": small})
    assert (found.counts, found.bad) == ({"a.parquet": 7777, "b.parquet": 50_000}, {})


def test_a_column_without_lists_behind_many_with_tells_how_many_rows_there_are(read: Reader):
    columns = {**{f"x{i}": [[1, 2]] * 7777 for i in range(9)}, "n": [1] * 7777}
    whole = file(columns, compression="none", store_schema=False, write_statistics=False)

    def change(footer: bytes) -> bytes:
        first, *columns, last = footer.split(varint(7777))  # the file's rows come first, the group's last
        return first + varint(77) + varint(7777).join(columns) + varint(77) + last

    found = read(Parquet, {"a.parquet": with_footer(whole, change)})
    assert found.bad["a.parquet"].endswith("by the footer, found 7,777 values of the column n")


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
HALF = decimal.Decimal("1.5")
ZONED = pa.array([HALF_PAST], pa.timestamp("us", "UTC"))
JOINED: dict[str, tuple[pa.Array, pa.Array, pa.DataType]] = {
    "whole numbers": (pa.array([1], pa.int32()), pa.array([2**40]), pa.int64()),
    "whole numbers and fractions": (pa.array([1]), pa.array([2.5]), pa.float64()),
    "zones": (pa.array([HALF_PAST], pa.timestamp("ms", "Europe/Berlin")), ZONED, ZONED.type),
    "nulls": (pa.nulls(1), pa.array(["x"]), pa.string()),
    "dictionaries": (pa.array(["x"]).dictionary_encode(), pa.array(["y"]), pa.string()),
    "views": (pa.array(["x"], pa.string_view()), pa.array(["y"]), pa.string()),
    "texts": (pa.array(["x"], pa.large_string()), pa.array(["y"]), pa.large_string()),
    "decimals": (pa.array([HALF], pa.decimal128(4, 1)), pa.array([HALF], pa.decimal128(4, 2)), pa.decimal128(5, 2)),
    "objects": (
        pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int32()), ("b", pa.null())])),
        pa.array([{"b": "x", "a": 2}]),
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
    ),
    "lists": (pa.array([[1]], pa.list_(pa.int32())), pa.array([[2**40]]), pa.list_(pa.int64())),
}


@pytest.mark.parametrize(("first", "second", "kind"), JOINED.values(), ids=JOINED)
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_types_that_differ_between_files_become_one_that_holds_all_values(
    read: Reader, first: pa.Array, second: pa.Array, kind: pa.DataType, names: str
):
    found = read(Parquet, {f"{n}.parquet": file({"x": x}) for n, x in zip(names, (first, second), strict=True)})
    assert [found.good[f"{name}.parquet#0"]["x"] for name in names] == [first[0].as_py(), second[0].as_py()]
    if names == "ab":
        assert {schema.field("x").type for schema in found.schemas} == {kind}


CLASHES: dict[str, tuple[pa.Array, pa.Array]] = {
    "text and numbers": (pa.array(["s"]), pa.array([1])),
    "zoned and not": (ZONED, pa.array([HALF_PAST], pa.timestamp("us"))),
    "text and bytes": (pa.array(["s"]), pa.array([b"s"])),
    "decimals and floats": (pa.array([HALF]), pa.array([1.5])),
    "truths and numbers": (pa.array([True]), pa.array([1])),
    "lists and none": (pa.array([[1]]), pa.array([1])),
    "objects of other values": (pa.array([{"a": 1}]), pa.array([{"a": "x"}])),
}


@pytest.mark.parametrize(("usual", "odd"), CLASHES.values(), ids=CLASHES)
def test_a_file_with_a_type_that_does_not_fit_is_quarantined_and_both_are_named(
    read: Reader, usual: pa.Array, odd: pa.Array
):
    found = read(Parquet, {f"{i}.parquet": file({"id": [i], "x": odd if i == 0 else usual}) for i in range(3)})
    known = str(usual.type).replace("<item", "<element")
    told = f"column x: expected {known}, as in 1.parquet, found {odd.type} in 0.parquet; write the column with one type"
    assert found.bad == {"0.parquet#0": told}
    assert found.column("id") == [1, 2]


def test_a_value_that_the_common_type_does_not_hold_is_quarantined_alone(read: Reader):
    found = read(Parquet, {"a.parquet": file({"x": [1.5]}), "b.parquet": file({"x": [2**53 + 1, 2]})})
    assert list(found.bad) == ["b.parquet#0"]
    assert found.bad["b.parquet#0"].endswith("found int64 in b.parquet, and a value that double cannot represent")
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
STRICT = {
    "an object": (pa.struct([REQUIRED]), {"c": 1}),
    "a list": (pa.list_(REQUIRED), [1]),
    "a list of objects": (pa.list_(pa.field("element", pa.struct([REQUIRED]), nullable=False)), [{"c": 1}]),
    "an object of an object": (pa.struct([pa.field("d", pa.struct([REQUIRED]), nullable=False)]), {"d": {"c": 1}}),
}


@pytest.mark.parametrize(("kind", "value"), STRICT.values(), ids=STRICT)
def test_what_one_file_requires_inside_a_column_may_be_null_elsewhere(tmp_path: Path, kind: pa.DataType, value: object):
    strict = pa.table({"s": pa.array([value], kind)}, pa.schema([pa.field("s", kind, False)]))
    tables = {"a": strict, "b": {"y": ["b"]}, "c": {"s": pa.array([None], plain_kind(kind))}}
    for name, columns in tables.items():
        (tmp_path / f"{name}.parquet").write_bytes(file(columns))
    source = Parquet(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    blocks = list(source.read(units, source.common_schema(units)))
    whole = conform(rebatch.joined(blocks), common_schema(block.schema for block in blocks))
    assert pq.read_table(io.BytesIO(file(whole)))["s"].to_pylist() == [value, None, None]


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
