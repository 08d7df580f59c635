"""What the user's own code is given of a column, and that what comes back untouched is what went in."""

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from overnight.tasks.rows import tensors, user_function, user_values

BERLIN = pa.timestamp("us", "Europe/Berlin")
JULY, JANUARY = datetime.datetime(2024, 7, 1), datetime.datetime(2024, 1, 1)
A_YEAR_LATER = [datetime.datetime(2025, 7, 1), None, datetime.datetime(2025, 1, 1)]

COLUMNS = {
    "integers": pa.array([9007199254740993, None, 7], pa.int64()),
    "small": pa.array([1, None, 7], pa.int8()),
    "whole": pa.array([1, 2, 2**53 + 1], pa.uint64()),
    "no integers": pa.nulls(3, pa.int64()),
    "floats": pa.array([0.1, None, float("nan")], pa.float32()),
    "bools": pa.array([True, None, False]),
    "texts": pa.array(["a", None, ""]),
    "long texts": pa.array(["a", None, ""], pa.large_string()),
    "categories": pa.array(["a", None, "a"]).dictionary_encode(),
    "bytes": pa.array([b"\xff", None, b""]),
    "zoned": pa.array([JULY, None, JANUARY], BERLIN),
    "no times": pa.nulls(3, BERLIN),
    "seconds": pa.array([JULY, None, JANUARY], pa.timestamp("s", "UTC")),
    "nanoseconds": pa.array([1709208000000000001, None, 0], pa.timestamp("ns", "UTC")),
    "naive": pa.array([JULY, None, JANUARY], pa.timestamp("ms")),
    "naive nanoseconds": pa.array([1709208000000000001, None, 0], pa.timestamp("ns")),
    "dates": pa.array([JULY.date(), None, JANUARY.date()]),
    "times of day": pa.array([JULY.time(), None, JANUARY.time()], pa.time32("s")),
    "durations": pa.array([1, None, 3], pa.duration("ms")),
    "money": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("0")], pa.decimal128(9, 2)),
    "lists": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "words": pa.array([["a", None], None, []]),
    "records": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
    "pairs": pa.array([[1, 2], [3, 4], [5, 6]]),
    "maps": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "tensors": tensors.to_arrow([np.zeros((2, 2), np.uint8), None, np.ones((1, 2), np.uint8)]),
}


def _in_utc(value: np.datetime64) -> datetime.datetime | None:
    return None if np.isnat(value) else value.item().replace(tzinfo=datetime.UTC)


def returned(function: Any, name: str) -> Any:
    column = COLUMNS[name]
    return user_function.outcome_of(function, pa.table({"column": column}), "infer", "model").columns.get("column")


def through_pandas(batch: dict[str, np.ndarray]) -> pd.DataFrame:
    return pd.DataFrame({key: list(values) if values.ndim > 1 else values for key, values in batch.items()})


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_comes_back_in_any_container_is_what_went_in(name: str) -> None:
    assert returned(lambda batch: batch, name) is None
    assert returned(lambda batch: {"column": list(batch["column"])}, name) is None
    assert returned(lambda batch: {"column": batch["column"].copy()}, name) is None
    assert returned(lambda batch: through_pandas(batch).to_dict("list"), name) is None
    assert returned(lambda batch: through_pandas(batch).to_dict("series"), name) is None


def test_integers_with_nulls_and_times_with_a_zone_are_given_exactly() -> None:
    assert user_values.given(pa.chunked_array([COLUMNS["integers"]])).tolist() == [9007199254740993, None, 7]
    times = user_values.given(pa.chunked_array([COLUMNS["zoned"]]))
    assert list(map(str, times)) == ["2024-07-01 02:00:00+02:00", "None", "2024-01-01 01:00:00+01:00"]
    assert user_values.given(pa.chunked_array([COLUMNS["whole"]])).dtype == np.uint64


def test_a_time_that_python_cannot_hold_is_given_as_numpy_has_it() -> None:
    far = pa.chunked_array([pa.array([2**60], pa.timestamp("s", "UTC"))])
    assert user_values.given(far).dtype == np.dtype("datetime64[s]")


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("small", lambda value: 300 if value == 7 else value, pa.array([1, None, 300], pa.int64())),
        ("small", lambda value: 8 if value == 7 else value, pa.array([1, None, 8], pa.int8())),
        ("integers", lambda value: None if value == 7 else value, pa.array([9007199254740993, None, None], pa.int64())),
        ("integers", lambda value: 0.5, pa.array([0.5] * 3)),
        ("texts", lambda value: value or "b", pa.array(["a", "b", "b"])),
        ("zoned", lambda value: value and value.replace(year=2025), pa.array(A_YEAR_LATER, BERLIN)),
        ("naive", _in_utc, pa.array([JULY, None, JANUARY], pa.timestamp("us", "UTC"))),
    ],
)  # fmt: skip
def test_a_changed_value_is_kept_and_the_others_of_its_column_with_it(name: str, change: Any, expected: Any) -> None:
    found = tensors.to_arrow(returned(lambda batch: {"column": [change(value) for value in batch["column"]]}, name))
    assert found.equals(expected), found


def test_a_number_that_became_a_float_is_a_change() -> None:
    found = returned(lambda batch: {"column": batch["column"].astype(float)}, "whole")
    assert tensors.to_arrow(found).type == pa.float64()


FOUND = pa.list_(pa.struct([("score", pa.float32()), ("label", pa.string())]))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[], None], FOUND),
        ([None, None], FOUND),
        ([None], pa.string()),
        (pa.array([[{"label": "a"}], []]), FOUND),
        ([{"a": []}], pa.struct([("a", pa.list_(pa.int64())), ("b", pa.binary())])),
    ],
)
def test_values_that_lack_types_or_fields_get_those_of_the_trial(values: object, kind: pa.DataType) -> None:
    found = user_values.as_declared(values, kind)
    assert found.type == kind
    wider = pa.array(pa.array(values).to_pylist(), kind)
    assert found.equals(wider)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2**60], pa.float64()),
        ([["a"]], pa.list_(pa.int64())),
        ([{"new": 1}], pa.struct([("a", pa.int64())])),
        (np.array([1.5], np.float32), pa.float64()),
        ([object()], pa.string()),
    ],
)
def test_values_of_other_types_stay_as_they_are(values: object, kind: pa.DataType) -> None:
    found = user_values.as_declared(values, kind)
    assert found is values or found.equals(pa.array(values))
