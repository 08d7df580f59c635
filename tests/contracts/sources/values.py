"""A column of edge values for each Arrow type that a table can have, and their names by what formats lack."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa

UTC = datetime.UTC
FIRST, LAST = datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
TEXTS = ["", "a", None, 'é "x"\n\t,', "NaN", "02116", "🦉", "null", "\x00"]
NUMBERS = [0, 1, None, -1, 2, 3, 4, 5, 6]


def _some(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    """The values with as many nulls behind them as it takes to fill the table."""
    return pa.array([*values, *[None] * (len(TEXTS) - len(values))], kind)


def _integers(kind: pa.DataType) -> pa.Array:
    limits = np.iinfo(str(kind))
    return _some([0, int(limits.min), int(limits.max)], kind)


_STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.struct([("d", pa.float32())]))])
_RECORDS = [{"a": 1, "b": ["x", None, ""], "c": {"d": 0.5}}, {"a": None, "b": [], "c": None}, None]
_WORDS = pa.array(["b", "a", None, "b", "", "a", "a", "a", "a"])

COLUMNS: dict[str, pa.Array] = {
    "n": pa.array(range(len(TEXTS)), pa.int64()),
    "text": pa.array(TEXTS),
    "large text": pa.array(TEXTS, pa.large_string()),
    "text view": pa.array(TEXTS, pa.string_view()),
    "bytes": _some([b"", b"\xff\x00", None], pa.binary()),
    "large bytes": _some([b"", b"\xff\x00", None], pa.large_binary()),
    "bytes view": _some([b"", b"\xff\x00" * 20, None], pa.binary_view()),
    "fixed bytes": _some([b"abc", b"\x00\x00\x00"], pa.binary(3)),
    "truth": _some([True, False, None]),
    **{kind: _integers(pa.type_for_alias(kind)) for kind in ("int8", "int16", "int32", "int64")},
    **{kind: _integers(pa.type_for_alias(kind)) for kind in ("uint8", "uint16", "uint32", "uint64")},
    "half": pa.array(np.array([1.5, np.nan, np.inf, -np.inf, -0.0, 65504, 6e-8, 0, 1], np.float16)),
    "float": _some([1.5, float("nan"), float("inf"), float("-inf"), -0.0, None, 1e-45], pa.float32()),
    "double": _some([0.1, float("nan"), float("inf"), float("-inf"), -0.0, None, 5e-324, 1e308], pa.float64()),
    "decimal": _some([decimal.Decimal("1.50"), decimal.Decimal("-9999999.99")], pa.decimal128(9, 2)),
    "long decimal": _some([decimal.Decimal("1" * 38), decimal.Decimal("-1")], pa.decimal128(38, 0)),
    "longest decimal": _some([decimal.Decimal("1" * 70), decimal.Decimal("-1")], pa.decimal256(76, 0)),
    "day": _some([FIRST.date(), LAST.date(), datetime.date(1969, 12, 31)], pa.date32()),
    "day64": _some([datetime.date(1969, 12, 31), LAST.date()], pa.date64()),
    "seconds": _some([FIRST, LAST.replace(microsecond=0)], pa.timestamp("s")),
    "milliseconds": _some([FIRST, datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)], pa.timestamp("ms")),
    "microseconds": _some([FIRST, LAST, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")),
    "nanoseconds": _some([-1, -(10**9) - 1, 2**62], pa.int64()).cast(pa.timestamp("ns")),
    "zoned": _some([FIRST.replace(tzinfo=UTC), LAST.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
    "zoned elsewhere": _some([datetime.datetime(2024, 3, 31, 1, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")),
    "zoned nanoseconds": _some([-1, 2**62], pa.int64()).cast(pa.timestamp("ns", "UTC")),
    "time": _some([datetime.time(23, 59, 59, 999999), datetime.time(0)], pa.time64("us")),
    "time of nanoseconds": _some([86_399_999_999_000, 0], pa.int64()).cast(pa.time64("ns")),
    "time of milliseconds": _some([datetime.time(23, 59, 59, 999000)], pa.time32("ms")),
    "duration": _some([datetime.timedelta(microseconds=-1), datetime.timedelta(days=9999)], pa.duration("us")),
    "duration of nanoseconds": _some([-1, 2**62], pa.int64()).cast(pa.duration("ns")),
    "words": _WORDS.dictionary_encode(),
    "numbers as words": _some([1.5, 1.5, None], pa.float64()).dictionary_encode(),
    "list": _some([[1, None], [], None], pa.list_(pa.int32())),
    "large list": _some([["", None], [], None], pa.large_list(pa.string())),
    "list view": _some([[1, None], [], None], pa.list_view(pa.int64())),
    "vector": _some([[1.0, float("nan")], [0.0, -0.0]], pa.list_(pa.float32(), 2)),
    "list of lists": _some([[[1], [], None], []], pa.list_(pa.list_(pa.int64()))),
    "list of words": _some([["a", "b", "a"], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "list of text views": _some([["a", None], []], pa.list_(pa.string_view())),
    "record": _some(_RECORDS, _STRUCT),
    "record of words": _some([{"w": "a"}, {"w": None}], pa.struct([("w", pa.dictionary(pa.int8(), pa.string()))])),
    "list of records": _some([_RECORDS[:2], []], pa.list_(_STRUCT)),
    "map": _some([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int64())),
    "map of records": _some([[("k", _RECORDS[0])], []], pa.map_(pa.string(), _STRUCT)),
    "nothing": _some([]),
}  # fmt: skip
ARROW = pa.table(COLUMNS)


def without(*names: str) -> pa.Table:
    """All columns but those that a format cannot hold: each name is one of `COLUMNS`."""
    return ARROW.drop_columns(list(names))
