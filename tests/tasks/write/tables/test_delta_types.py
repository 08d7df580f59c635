"""What a Delta table holds of what Arrow knows: written, committed and read back."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from overnight.tasks.errors import ContractError
from overnight.tasks.write.sinks.delta import DeltaSink
from overnight.tasks.write.tables.delta_types import delta_schema, fitted
from tests.contracts.sinks.publications import numbered, publish_parts

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
UTC = datetime.UTC
VALUES: dict[str, tuple[pa.Array, str, Any]] = {
    "u8": (pa.array([255], pa.uint8()), "int16", 255),
    "u16": (pa.array([65535], pa.uint16()), "int32", 65535),
    "u32": (pa.array([2**32 - 1], pa.uint32()), "int64", 2**32 - 1),
    "u64": (pa.array([2**64 - 1], pa.uint64()), "decimal128(20, 0)", Decimal(2**64 - 1)),
    "half": (pa.array([np.float16(1.5)], pa.float16()), "float", 1.5),
    "vector": (pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "list<float>", [1.0, 2.0]),
    "bytes_list": (pa.array([[[1], None]], pa.list_(pa.list_(pa.uint8()))), "list<list<int16>>", [[1], None]),
    "nanoseconds": (
        pa.array([1_767_322_845_678_901_234], pa.timestamp("ns")), "timestamp[us, tz=UTC]", None,
    ),
    "naive": (pa.array([MOMENT], pa.timestamp("us")), "timestamp[us, tz=UTC]", MOMENT.replace(tzinfo=UTC)),
    "zoned": (
        pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("ms", "Europe/Berlin")), "timestamp[us, tz=UTC]",
        MOMENT.replace(tzinfo=UTC, microsecond=678000),
    ),
    "day": (pa.array([datetime.date(2026, 1, 2)], pa.date64()), "date32[day]", datetime.date(2026, 1, 2)),
    "time": (pa.array([datetime.time(13, 45)], pa.time64("us")), "string", "13:45:00.000000"),
    "took": (pa.array([90], pa.duration("s")), "int64", 90),
    "category": (pa.array(["a"]).dictionary_encode(), "string", "a"),
    "long_text": (pa.array(["a"], pa.large_string()), "string", "a"),
    "digest": (pa.array([b"abcd"], pa.binary(4)), "binary", b"abcd"),
    "uuid": (pa.array([b"0123456789abcdef"], pa.uuid()), "binary", b"0123456789abcdef"),
    "nested": (
        pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.uint8()), ("b", pa.null())])), "struct<a: int16>", {"a": 1},
    ),
    "pairs": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.uint8())), "map<string, int16>", [("k", 1)]),
    "plain": (pa.array([1], pa.int32()), "int32", 1),
}  # fmt: skip


def test_every_type_is_read_back_as_the_nearest_that_delta_has(tmp_path: Path, ray_session: None):
    columns = {name: array for name, (array, _, _) in VALUES.items()}
    publish_parts(numbered(tmp_path, 1), DeltaSink(path="-"), {**columns, "nothing": pa.nulls(1)})
    table = DeltaTable(tmp_path / "out").to_pyarrow_table()
    assert "nothing" not in table.column_names
    for name, (_, kind, value) in VALUES.items():
        assert str(table.schema.field(name).type).replace("element: ", "").replace("item: ", "") == kind, name
        if value is not None:
            assert table[name][0].as_py() == value, name
    assert table["nanoseconds"].cast(pa.int64())[0].as_py() == 1_767_322_845_678_901


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.decimal256(60, 2), pa.list_(pa.decimal256(60, 2))])
def test_a_type_that_delta_cannot_hold_in_any_way_is_refused_by_its_column_s_name(kind: pa.DataType):
    with pytest.raises(ContractError, match=r"'odd'.*cannot store"):
        delta_schema(pa.schema([("odd", kind)]))


@pytest.mark.parametrize(
    ("ours", "table"),
    [(pa.int32(), pa.int64()), (pa.float32(), pa.float64()), (pa.list_(pa.int8()), pa.list_(pa.int32()))],
)
def test_a_narrower_type_is_published_as_the_table_s(ours: pa.DataType, table: pa.DataType):
    assert fitted(pa.schema([("x", ours), ("new", pa.int8())]), pa.schema([("x", table), ("old", pa.int8())])) == (
        pa.schema([("x", table), ("new", pa.int8())])
    )


@pytest.mark.parametrize(
    ("ours", "table"), [(pa.int64(), pa.int32()), (pa.string(), pa.int64()), (pa.list_(pa.int8()), pa.int8())]
)
def test_a_type_that_the_table_has_no_room_for_is_refused(ours: pa.DataType, table: pa.DataType):
    with pytest.raises(ContractError, match="column 'x'"):
        fitted(pa.schema([("x", ours)]), pa.schema([("x", table)]))
