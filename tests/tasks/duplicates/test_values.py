"""Two values have the same bytes exactly if they are equal, whatever Arrow types hold them."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.duplicates.values import encoded, joined
from overnight.tasks.errors import ContractError
from overnight.tasks.rows.tensors import to_arrow


def one(value: Any, kind: pa.DataType | None = None) -> bytes | None:
    return encoded(pa.chunked_array([pa.array([value], kind)]), "x")[0]


def tensor(value: np.ndarray) -> bytes | None:
    return encoded(to_arrow([value]), "x")[0]


NOON = dt.datetime(2026, 1, 2, 12)
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])
LONGER = pa.struct([("b", pa.large_string()), ("c", pa.float64()), ("a", pa.int8())])
DICTIONARY = pa.dictionary(pa.int8(), pa.string())

EQUAL = {
    "numbers of other widths": (one(1, pa.int8()), one(1, pa.uint64())),
    "a whole number and a double": (one(1, pa.int64()), one(1.0, pa.float64())),
    "a float and its double": (one(0.1, pa.float32()), one(float(np.float32(0.1)), pa.float64())),
    "both zeros": (one(-0.0, pa.float32()), one(0, pa.int8())),
    "two nan": (one(float("nan"), pa.float32()), one(-float("nan"), pa.float64())),
    "decimals of other scales": (one(Decimal("1.50"), pa.decimal128(9, 2)), one(Decimal("1.5"), pa.decimal256(40, 5))),
    "a decimal and its double": (one(Decimal("0.5"), pa.decimal128(3, 1)), one(0.5, pa.float64())),
    "texts": (one("ä", pa.string()), one("ä", pa.large_string())),
    "a text of a dictionary": (one("ä", pa.string()), encoded(pa.array(["ä"]).cast(DICTIONARY), "x")[0]),
    "bytes": (one(b"ab", pa.binary()), one(b"ab", pa.binary(2))),
    "times of other units": (one(NOON, pa.timestamp("s")), one(NOON, pa.timestamp("ns"))),
    "an instant in two zones": (one(NOON, pa.timestamp("ms", "UTC")), one(NOON, pa.timestamp("us", "Europe/Berlin"))),
    "a date and its midnight": (one(NOON.date(), pa.date32()), one(dt.datetime(2026, 1, 2), pa.timestamp("ms"))),
    "lists of other kinds": (one([1, None], pa.list_(pa.int32())), one([1.0, None], pa.list_(pa.float64(), 2))),
    "structs of other fields": (one({"a": 1, "b": "x"}, STRUCT), one({"b": "x", "c": None, "a": 1}, LONGER)),
    "arrays of whole numbers": (tensor(np.array([[1, 2]], np.int8)), tensor(np.array([[1, 2]], np.uint64))),
    "arrays": (tensor(np.array([[-0.0, np.nan]], np.float32)), tensor(np.array([[0.0, np.nan]]))),
}
DIFFERENT = {
    "a number and its text": (one(1), one("1")),
    "a bool and a number": (one(True), one(1)),
    "a text and its bytes": (one("ab"), one(b"ab")),
    "upper case": (one("Ä"), one("ä")),
    "a composed letter and its parts": (one("\u00e4"), one("a\u0308")),
    "large whole numbers": (one(2**53), one(2**53 + 1)),
    "a large double and the number beside it": (one(float(2**53)), one(2**53 + 1)),
    "nested lists": (one([[1], [2]]), one([[1, 2], []])),
    "an empty list and null": (one([], pa.list_(pa.int64())), one(None, pa.list_(pa.int64()))),
    "an empty text and null": (one(""), one(None, pa.string())),
    "a time with and without a zone": (one(NOON, pa.timestamp("s", "UTC")), one(NOON, pa.timestamp("s"))),
    "fields that change places": (one({"a": 1, "b": None}), one({"a": None, "b": 1})),
    "a struct of nulls and null": (one({"a": None, "b": None}, STRUCT), one(None, STRUCT)),
    "an array of large numbers and of their bits": (tensor(np.array([[2**64 - 1]])), tensor(np.array([[-1]]))),
    "arrays of other shapes": (tensor(np.zeros((1, 2))), tensor(np.zeros((2, 1)))),
}


@pytest.mark.parametrize(("first", "second"), EQUAL.values(), ids=EQUAL)
def test_equal_values_have_the_same_bytes(first: bytes, second: bytes) -> None:
    assert first == second != None  # noqa: E711


@pytest.mark.parametrize(("first", "second"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_values_have_other_bytes(first: bytes | None, second: bytes | None) -> None:
    assert first != second


def test_rows_whose_values_run_together_differ() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("a", None), (None, "a"), ("a-", None), ("2:ab", ""), ("", "2:ab")]
    assert len({joined([one(value, pa.string()) for value in row]) for row in rows}) == len(rows)


def test_parts_of_columns_are_encoded_as_the_whole() -> None:
    rows = [{"a": [1, 2], "b": "x"}, None, {"a": None, "b": "y"}, {"a": [], "b": None}, {"a": [3], "b": "z"}]
    column = pa.chunked_array([pa.array(rows)])
    assert encoded(column, "x")[1:4] == encoded(column[1:4], "x")
    assert encoded(column[2:3].combine_chunks(), "x") == encoded(pa.array(rows[2:3], column.type), "x")


def test_values_that_cannot_be_compared_are_refused_by_their_column() -> None:
    with pytest.raises(ContractError, match=r"in column 'x', found map<string, int64>"):
        one([("a", 1)], pa.map_(pa.string(), pa.int64()))
