"""Columns of every Arrow type that a source or a model can give, and the values in them without any library's form.

`facts(array)` and `canonical(cell, kind)` bring a column and what a reader returns for it to one form: times are
nanoseconds, durations whole numbers, bytes are bytes, and NaN equals NaN. `canonical` knows the forms that the
documentation promises: ISO 8601, Base64, decimals and times as text, JSON for nested values.
"""

import base64
import datetime as dt
import json
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

ROWS = 6
NAN, INF = float("nan"), float("inf")
FIRST, LAST = -62_135_596_800, 253_402_300_799  # seconds of the years 1 and 9999
ZONES = (None, "UTC", "Europe/Berlin", "+05:30")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)?[ T]?(\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:?\d\d)?")
_UNITS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


def padded(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([*values, *[None] * (ROWS - len(values))], kind)


def _numbers() -> dict[str, pa.Array]:
    found = {"bool": padded([True, False])}
    for bits in (8, 16, 32, 64):
        found[f"int{bits}"] = padded([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1], pa.type_for_alias(f"int{bits}"))
        found[f"uint{bits}"] = padded([0, 2**bits - 1], pa.type_for_alias(f"uint{bits}"))
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        found[str(kind)] = padded([0.1, INF, -INF, 1.5, -0.25], pa.float64()).cast(kind)
    for kind in (pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(38, 2), pa.decimal256(38, 2)):
        found[str(kind)] = padded([Decimal("1.50"), Decimal("-123.45")], kind)
    return found | {"decimal256_long": padded([Decimal("1" * 50 + ".50")], pa.decimal256(60, 2))}


def _texts_and_bytes() -> dict[str, pa.Array]:
    texts = ['a "quoted", é\n', "", None, "nan", "NULL", "007"]
    content = [b"\x00\xff", b"", None, b"abcd"]
    found = {str(kind): padded(texts, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())}
    found |= {str(kind): padded(content, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())}
    return found | {"binary4": padded([b"\x00\xffab"], pa.binary(4))}


def _times() -> dict[str, pa.Array]:
    days = [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)]
    found = {"date32": padded(days, pa.date32()), "date64": padded(days, pa.date64())}
    found |= {f"time32{unit}": padded([1, 86_399], pa.time32(unit)) for unit in ("s", "ms")}
    found |= {f"time64{unit}": padded([1000, 86_399_000], pa.time64(unit)) for unit in ("us", "ns")}
    found |= {f"duration_{unit}": padded([1, -1, 10**9], pa.duration(unit)) for unit in _UNITS}
    for place, zone in enumerate(ZONES):
        for unit, size in (("s", 1), ("ms", 10**3), ("us", 10**6)):
            ends = [FIRST * size, LAST * size] if zone in (None, "UTC") else [0]
            found[f"time_{unit}_{place}"] = padded([*ends, -1, 1_709_208_000 * size], pa.timestamp(unit, zone))
        found[f"time_ns_{place}"] = padded([1_709_208_000_123_456_000, -1000], pa.timestamp("ns", zone))
    return found


def _nested() -> dict[str, pa.Array]:
    lists, text = [[1, None], [], None, [3]], pa.list_(pa.string())
    number, pair = pa.int64(), pa.struct([("a", pa.int64()), ("b", pa.string())])
    several = {
        "list": pa.list_(number), "large_list": pa.large_list(number), "list_view": pa.list_view(number),
        "large_list_view": pa.large_list_view(number),
    }  # fmt: skip
    moment = pa.timestamp("us", "UTC")
    return {name: padded(lists, kind) for name, kind in several.items()} | {
        "fixed_list": padded([[1, 2], [3, None]], pa.list_(number, 2)),
        "vector": pa.array([[0.5, 0.25]] * ROWS, pa.list_(pa.float32(), 2)),
        "matrix": padded([[[1, 2], [3, 4]]], pa.list_(pa.list_(number, 2), 2)),
        "words": padded([["a", ""], [None], []], text),
        "views": padded([["a"], []], pa.list_(pa.string_view())),
        "words_of_words": padded([[["a"], []], [None]], pa.list_(text)),
        "days": padded([[dt.date(1, 1, 1)], [None]], pa.list_(pa.date32())),
        "moments": padded([[0, 1], [None], [-1]], pa.list_(moment)),
        "nanoseconds": padded([[1000], [None], [-1000]], pa.list_(pa.timestamp("ns"))),
        "clocks": padded([[dt.time(1, 2, 3)], []], pa.list_(pa.time64("us"))),
        "spans": padded([[dt.timedelta(1)], [None]], pa.list_(pa.duration("us"))),
        "prices": padded([[Decimal("1.50")], [None]], pa.list_(pa.decimal128(5, 2))),
        "raw": padded([[b"\x00\xff"], [None]], pa.list_(pa.binary())),
        "halves": padded([[1.5, None]], pa.list_(pa.float32())).cast(pa.list_(pa.float16())),
        "large": padded([[2**64 - 1], [None]], pa.list_(pa.uint64())),
        "truths": padded([[True, None], []], pa.list_(pa.bool_())),
        "struct": padded([{"a": 1, "b": "x"}, {"a": None, "b": ""}], pair),
        "struct_of_times": padded([{"a": 0}, {"a": -1}], pa.struct([("a", moment)])),
        "struct_of_list": padded([{"a": []}, {"a": None}, {"a": ["x"]}], pa.struct([("a", text)])),
        "struct_of_spans": padded([{"a": 5}], pa.struct([("a", pa.duration("s"))])),
        "struct_with_null": padded([{"a": 1, "n": None}], pa.struct([("a", number), ("n", pa.null())])),
        "struct_of_view": padded([{"a": [1]}], pa.struct([("a", pa.list_view(number))])),
        "structs": padded([[{"a": 1, "b": None}], []], pa.list_(pair)),
        "dictionary": padded(["a", None, "b"]).dictionary_encode(),
        "numbered": padded([1, None, 2]).dictionary_encode(),
        "run_ends": pa.RunEndEncodedArray.from_arrays(pa.array([2, ROWS], pa.int32()), pa.array([7, None], number)),
        "uuid": padded([b"0123456789abcdef"], pa.uuid()),
        "json": padded(['{"a":1}'], pa.json_()),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), padded([1, 0], pa.int8())),
        "tensor": pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), (2, 2)), pa.array([[1, 2, 3, 4]] * ROWS, pa.list_(pa.float32(), 4))
        ),
    }


def _odd() -> dict[str, pa.Array]:
    """Columns that some sinks refuse: by the type, or row by row."""
    number, floats, pair = pa.int64(), pa.list_(pa.float64()), pa.struct([("a", pa.int64())])
    return {
        "nan": padded([NAN, 1.5]),
        "minus_zero": padded([-0.0]),
        "nan_in_list": padded([[0.5, INF], [NAN], [], [None]], floats),
        "nan_in_vector": pa.array([[0.5, NAN], [1.0, -INF], *[[0.0, 1.0]] * 4], pa.list_(pa.float32(), 2)),
        "nan_in_struct": padded([{"a": NAN}, {"a": -INF}, {"a": 1.0}], pa.struct([("a", pa.float64())])),
        "nan_in_lists": padded([[[NAN]], [[1.0]]], pa.list_(floats)),
        "nanosecond": padded([1_709_208_000_123_456_789, -1, 1000], pa.timestamp("ns")),
        "nanosecond_zoned": padded([1_709_208_000_123_456_789, -1, 1000], pa.timestamp("ns", "Europe/Berlin")),
        "nanosecond_of_day": padded([1, 86_399_999_999_999, 1000], pa.time64("ns")),
        "nanosecond_in_list": padded([[1_709_208_000_123_456_789], [-1], [1000]], pa.list_(pa.timestamp("ns"))),
        "nanosecond_in_struct": padded([{"a": -1}, {"a": 1000}], pa.struct([("a", pa.timestamp("ns", "UTC"))])),
        "map": padded([[("a", 1.5)], []], pa.map_(pa.string(), pa.float64())),
        "map_of_numbers": padded([[(1, "x"), (2, None)], []], pa.map_(number, pa.string())),
        "map_in_list": padded([[[("a", 1)]], []], pa.list_(pa.map_(pa.string(), number))),
        "map_in_struct": padded([{"a": [("k", 1)]}], pa.struct([("a", pa.map_(pa.string(), number))])),
        "fixed_structs": pa.array([[{"a": 1}, {"a": 2}]] * ROWS, pa.list_(pair, 2)),
        "fixed_words": padded([["a", "b"]], pa.list_(pa.string(), 2)),
        "interval": padded([(1, 2, 3)], pa.month_day_nano_interval()),
        "union": pa.UnionArray.from_sparse(
            pa.array([0, 1] * 3, pa.int8()), [pa.array(range(ROWS)), pa.array(["a"] * ROWS)]
        ),
    }


def columns() -> dict[str, pa.Array]:
    return _numbers() | _texts_and_bytes() | _times() | _nested() | _odd()


def facts(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    return [canonical(_native(value), array.type) for value in array]


def _native(value: pa.Scalar) -> Any:
    """An Arrow value without the losses of Python's own types."""
    if not value.is_valid:
        return None
    kind = value.type
    if isinstance(kind, pa.BaseExtensionType) or types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _native(value.value)
    if types.is_timestamp(kind) or types.is_time(kind):
        return value.value * _UNITS[kind.unit]
    if types.is_duration(kind):
        return value.value
    if types.is_struct(kind):
        return {field.name: _native(value[field.name]) for field in kind}
    if types.is_map(kind):
        return [(_native(pair[0]), _native(pair[1])) for pair in value.values]
    if types.is_nested(kind) and not types.is_union(kind):
        return [_native(item) for item in value.values]
    return value.as_py()


def canonical(value: Any, kind: pa.DataType) -> Any:
    """The fact that a cell of a column of type `kind` states, whatever form a reader gives it."""
    if isinstance(value, pa.Scalar):
        value = _native(value)
    if value is None:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return canonical(value, kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return canonical(value, kind.value_type)
    if types.is_nested(kind):
        return _nested_fact(json.loads(value) if isinstance(value, str) else value, kind)
    if types.is_timestamp(kind) or types.is_time(kind):
        return value if isinstance(value, int) else _nanoseconds(str(value))
    if types.is_date(kind):
        return str(value)[:10]
    if types.is_decimal(kind):
        return Decimal(str(value))
    if types.is_floating(kind):
        number = float(np.float64(value).astype(kind.to_pandas_dtype()))
        return repr(number)
    if types.is_integer(kind) or types.is_duration(kind):
        return int(value)
    if types.is_boolean(kind):
        return {"true": True, "false": False}.get(value, bool(value)) if isinstance(value, str) else bool(value)
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return value if is_text or not isinstance(value, str) else base64.b64decode(value)


def _nested_fact(value: Any, kind: pa.DataType) -> Any:
    if types.is_map(kind):
        return [(canonical(key, kind.key_type), canonical(item, kind.item_type)) for key, item in value]
    if types.is_struct(kind):
        known = [field for field in kind if not types.is_null(field.type)]
        return {field.name: canonical(value.get(field.name), field.type) for field in known}
    return [canonical(item, kind.value_type) for item in value]


def _nanoseconds(text: str) -> int:
    match = _MOMENT.fullmatch(text)
    assert match, f"expected a time in ISO 8601, found {text!r}"
    day, clock, fraction, zone = match.groups()
    moment = dt.datetime.fromisoformat(f"{day or '1970-01-01'}T{clock}{zone or '+00:00'}")
    seconds = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)
    return seconds * 10**9 + int((fraction or "0").ljust(9, "0"))
