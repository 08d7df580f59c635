"""Figures of columns: right, the same however the rows are cut into tables, and JSON."""

import json
import math
import statistics
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.tasks.write.checks.column_statistics import (
    CLASS_BYTES,
    MOST_CLASSES,
    Record,
    combine,
    describe,
    summary,
)

FLOATS = st.floats(-1e100, 1e100, width=64) | st.sampled_from([math.nan, math.inf, -math.inf, 0.1, -0.0, 1.0])
SMALL = st.floats(width=32, allow_nan=False) | st.sampled_from([math.nan, 1.0])
F32, F64 = pa.float32(), pa.float64()
MOMENTS = [datetime(2000, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC)]

# Values of every kind of column that sources, steps and models can publish.
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2)),
    (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(0, 2)),
    (pa.float16(), st.floats(width=16, allow_nan=False).map(np.float16)),
    (F32, SMALL),
    (F64, FLOATS),
    (pa.decimal128(9, 2), st.decimals(-9999, 9999, places=2)),
    (pa.string(), st.sampled_from(["cat", "dog", "", "ä" * 40, "x" * CLASS_BYTES])),
    (pa.large_string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=2)),
    (pa.date32(), st.dates(date(2000, 1, 1), date(2000, 1, 3))),
    (pa.timestamp("ns", "UTC"), st.sampled_from(MOMENTS)),
    (pa.time64("us"), st.sampled_from([time(1), time(2, 3, 4, 5)])),
    (pa.duration("ms"), st.timedeltas().map(lambda delta: int(delta.total_seconds()))),
    (pa.list_(pa.uint8(), 2), st.lists(st.integers(0, 1), min_size=2, max_size=2)),
    (pa.list_(F64), st.lists(FLOATS | st.none(), max_size=3)),
    (pa.large_list(pa.string()), st.lists(st.sampled_from(["a", "b"]), max_size=2)),
    (pa.list_(pa.list_(F32, 2)), st.lists(st.none() | st.lists(SMALL, min_size=2, max_size=2), max_size=2)),
    (pa.struct([("score", F32), ("at", pa.timestamp("us"))]), st.fixed_dictionaries({"score": SMALL})),
    (pa.map_(pa.string(), F32), st.dictionaries(st.sampled_from("ab"), st.just(1.0)).map(lambda d: list(d.items()))),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["cat", "dog"])),
]


def close(one: Record, other: Record) -> bool:
    """Equal, the mean and the deviation as far as adding in another order allows."""
    scale = max(abs(one.get("min") or 0), abs(one.get("max") or 0))
    for name in ("mean", "standard_deviation"):
        a, b = one.pop(name, None), other.pop(name, None)
        if (a is None) != (b is None) or not (a is None or math.isclose(a, b, abs_tol=1e-7 * scale)):
            return False
    return one == other


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda kind: str(kind)[:30])
@settings(max_examples=30)
@given(data=st.data())
def test_tables_described_one_by_one_are_as_if_described_together_and_summaries_are_json(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
):
    """The same column several times, with rows of its own; some tables empty, some cut from larger ones."""
    parts = []
    for rows in data.draw(st.lists(st.lists(values | st.none(), max_size=6), min_size=1, max_size=4)):
        array = pa.array(rows, kind)
        start = data.draw(st.integers(0, len(array)))
        parts.append(pa.table({"row_id": pa.nulls(len(array) - start, pa.string()), "x": array.slice(start)}))
    together = describe(pa.concat_tables(parts))
    assert list(together) == ["x"]
    shown = summary(together, [])
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    different = {repr(v) for part in parts for v in part["x"].to_pylist() if v is not None}
    assert shown["x"]["constant"] == (len(different) == 1)
    assert close(together["x"], combine([describe(part) for part in parts])["x"])


@given(st.lists(st.none() | FLOATS))
def test_numbers_are_counted_and_measured(values: list[float | None]):
    record = describe(pa.table({"x": pa.array(values, F64)}))["x"]
    finite = [v for v in values if v is not None and math.isfinite(v)]
    assert (record["rows"], record["nulls"]) == (len(values), values.count(None))
    assert record["nan"] == sum(v is not None and math.isnan(v) for v in values)
    assert record["infinite"] == sum(v is not None and math.isinf(v) for v in values)
    assert (record["min"], record["max"]) == ((min(finite), max(finite)) if finite else (None, None))
    if finite:
        scale = max(map(abs, finite))
        assert math.isclose(record["mean"], statistics.fmean(finite), abs_tol=1e-9 * scale)
        assert math.isclose(record["standard_deviation"], statistics.pstdev(finite), abs_tol=1e-7 * scale)


@given(st.lists(st.none() | st.text(max_size=20)))
def test_short_texts_are_counted_as_classes(values: list[str | None]):
    record = describe(pa.table({"x": pa.array(values, pa.string())}))["x"]
    assert record["classes"] == Counter(v for v in values if v is not None)


def test_truth_values_and_whole_numbers_are_classes_as_json_writes_them():
    found = describe(pa.table({"yes": [True, True, None], "digit": [7, 3, 7]}))
    assert list(found["yes"]["classes"].items()) == [("true", 2)]
    assert list(found["digit"]["classes"].items()) == [("7", 2), ("3", 1)]
    assert found["digit"]["mean"] == pytest.approx(17 / 3)
    shown = summary(found, [])["digit"]
    assert (shown["sum"], type(shown["sum"]), shown["classes"]) == (17, int, None)
    assert summary(describe(pa.table({"x": [0.5, 1.0]})), [])["x"]["sum"] == 1.5


@pytest.mark.parametrize(
    ("values", "count"),
    [
        (["a" * CLASS_BYTES], 1),
        (["a" * (CLASS_BYTES + 1)], None),
        (["ä" * (CLASS_BYTES // 2 + 1)], None),
        (list(range(MOST_CLASSES)), MOST_CLASSES),
        (list(range(MOST_CLASSES + 1)), None),
        ([0] * 9000 + list(range(MOST_CLASSES)), MOST_CLASSES),
        ([0] * 9000 + list(range(MOST_CLASSES + 1)), None),
    ],
)
def test_a_column_of_long_texts_or_of_too_many_values_has_no_classes(values: list[Any], count: int | None):
    classes = describe(pa.table({"x": values}))["x"]["classes"]
    assert (classes if classes is None else len(classes)) == count
    halves = [describe(pa.table({"x": half})) for half in (values[::2], values[1::2]) if half]
    classes = combine(halves)["x"]["classes"]
    assert (classes if classes is None else len(classes)) == count


def test_values_that_hardly_repeat_are_in_a_receipt_only_if_the_job_names_the_column():
    columns = describe(pa.table({"text": ["a", "b", "c", "c"], "label": ["cat", "dog", "cat", "dog"]}))
    assert summary(columns, [])["text"]["classes"] is None
    assert summary(columns, ["text"])["text"]["classes"] == {"c": 2, "a": 1, "b": 1}
    assert summary(columns, [])["label"]["classes"] == {"cat": 2, "dog": 2}


def test_rows_of_lists_that_hold_nan_are_counted_once_each():
    values = pa.array([[1.0, math.nan, math.nan], None, [], [math.inf, math.nan], [None, 2.0]], pa.list_(F64))
    nested = pa.array([[[1.0], [math.nan, 2.0], None, [math.nan]], [[math.inf], []]], pa.list_(pa.list_(F32)))
    found = describe(pa.table({"x": values}))["x"] | {"digest": None}
    assert found == {"type": "list<item: double>", "rows": 5, "nulls": 1, "digest": None, "nan": 2, "infinite": 1}
    deep = describe(pa.table({"x": nested}))["x"]
    assert (deep["nan"], deep["infinite"]) == (1, 1)
    assert "nan" not in describe(pa.table({"x": [[1, 2], [3]]}))["x"]
    embeddings = np.full((300, 512), np.nan, np.float32)  # of a broken model
    column = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), 512)
    broken = summary(describe(pa.table({"x": column})), [])["x"]
    assert (broken["constant"], broken["nan"]) == (True, 300)


def test_figures_that_float64_cannot_hold_are_null_and_those_of_a_constant_are_exact():
    record = describe(pa.table({"x": [1.7e308, 1.7e308, -1.7e308, 1.6e308]}))["x"]
    assert (record["max"], record["standard_deviation"]) == (1.7e308, None)
    assert json.dumps(combine([{"x": record}, {"x": record}]), allow_nan=False)
    constant = combine([describe(pa.table({"x": [0.1] * n})) for n in (1000, 7, 1)])["x"]
    assert (constant["mean"], constant["standard_deviation"]) == (0.1, 0.0)
    prices = describe(pa.table({"x": pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(5, 2))}))["x"]
    assert (prices["mean"], prices["min"]) == (2.0, 1.5)
    assert combine([]) == {}
