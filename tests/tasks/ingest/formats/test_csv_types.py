"""Types of columns of text: one that loses no digit of any value, else text."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.ingest.formats.csv_types import changes, convert, inferred_type


def column(*texts: str) -> pa.ChunkedArray:
    return pa.chunked_array([texts], pa.string())


def converted(text: str, kind: pa.DataType, **declared: str) -> Any:
    """The value of a text in a column of this type, or the reason why it is none."""
    found, errors = convert(pa.table({"x": column(text)}), pa.schema([("x", kind)]), False, declared, True)
    return str(errors[0]) if errors else found["x"][0].as_py()


TEXTS = {
    "leading zeros": ["02116", "00501", "10001"],
    "a plus": ["+4912", "+4913"],
    "20 digits": ["12345678901234567890", "1"],
    "23 digits": ["12345678901234567890123", "22345678901234567890123"],
    "16 digits beside a fraction": ["9007199254740993", "1.5"],
    "a fraction with more digits than a float64 has": ["0.12345678901234567891", "0.5"],
    "codes that look like powers of ten": ["1e5", "12E4", "7"],
    "more than a float64 reaches": ["1.5", "1e999"],
    "underscores": ["1_000", "2"],
    "blanks around": [" 12 ", "13"],
    "a minus zero": ["-0", "1"],
    "zeros before and behind": ["007.50", "8.25"],
    "versions": ["1.9", "1.10", "1.1"],
    "hexadecimal": ["0x1F", "0x20"],
    "truths of several spellings": ["TRUE", "true", "False"],
    "truths and numbers": ["true", "1", "0"],
    "times of day": ["10:30", "11:00"],
    "infinite": ["inf", "1"],
}
DAY = datetime.date(2024, 1, 31)
MORNING = datetime.datetime(2024, 1, 31, 10, tzinfo=datetime.UTC)
TYPED: dict[str, tuple[pa.DataType, list[str], list[Any]]] = {
    "whole numbers": (pa.int64(), ["-12", "", "9223372036854775807"], [-12, None, 2**63 - 1]),
    "fractions": (
        pa.float64(),
        ["0.10000000000000001", "1.0", "100", ".5", "1e-07", "-0.0"],
        [0.1, 1.0, 100.0, 0.5, 1e-07, -0.0],
    ),
    "fractions of two decimals each": (pa.float64(), ["1.50", "12.00", "3"], [1.5, 12.0, 3.0]),
    "fractions with all their digits": (pa.float64(), ["0.30000000000000004441", "1.5"], [0.1 + 0.2, 1.5]),
    "fractions and a nan": (pa.float64(), ["1.5", "nan", "1e+3"], [1.5, None, 1000.0]),
    "truths": (pa.bool_(), ["TRUE", "", "FALSE"], [True, None, False]),
    "days": (pa.date32(), ["2024-01-31", ""], [DAY, None]),
    "times": (pa.timestamp("s", "UTC"), ["2024-01-31T10:00:00Z", ""], [MORNING, None]),
    "texts": (pa.string(), ["x", "", "NA"], ["x", "", "NA"]),
    "only nulls": (pa.string(), ["", "NA"], ["", "NA"]),
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_a_column_is_text_if_its_type_would_write_a_value_in_another_way(texts: list[str]) -> None:
    for place in range(len(texts)):  # whichever comes first
        assert inferred_type(column(*texts[place:], *texts[:place])) == pa.string()


@pytest.mark.parametrize(("kind", "texts", "values"), TYPED.values(), ids=TYPED)
def test_a_column_has_a_type_if_no_digit_is_lost(kind: pa.DataType, texts: list[str], values: list[Any]) -> None:
    assert inferred_type(column(*texts)) == kind
    found, errors = convert(pa.table({"x": column(*texts)}), pa.schema([("x", kind)]), False, {}, True)
    assert (found["x"].to_pylist(), errors) == (values, {})


@pytest.mark.parametrize(("text", "value"), [("02116", 2116), ("-0", 0), ("0x1F", 31), (" 12", 12), ("+12", 12)])
def test_a_number_that_its_type_would_change_is_no_value_unless_the_job_declares_the_type(
    text: str, value: int
) -> None:
    assert changes(column("1", text), pa.int64())
    reason = f"column x: expected int64, found {text!r}, which int64 cannot represent as written; see source.types"
    assert converted(text, pa.int64()) == reason
    told = f"column x: expected int64, found {text!r}"  # Arrow reads no plus
    assert converted(text, pa.int64(), x="int64") == (told if "+" in text else value)


@pytest.mark.parametrize("text", ["1.5", "inf", "1,000", "99999999999999999999", "1_000"])
def test_a_text_that_its_type_does_not_hold_is_no_value(text: str) -> None:
    assert not changes(column("1", text), pa.int64())
    assert converted(text, pa.int64()) == f"column x: expected int64, found {text!r}"


def test_a_column_that_the_schema_lacks_is_text_or_as_declared_and_one_that_the_file_lacks_is_null() -> None:
    data = pa.table({"late": column("1"), "declared": column("2")})
    found, errors = convert(data, pa.schema([("x", pa.int64())]), False, {"declared": "int32"}, True)
    assert (found.to_pylist(), errors) == ([{"x": None, "late": "1", "declared": 2}], {})
    assert found.schema.field("declared").type == pa.int32()
