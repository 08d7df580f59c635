"""Values that code returns: as they are at the return, null where masked, of exact types or refused."""

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply
from tests.contracts.steps import user_code
from tests.contracts.steps.adapter import applied, assert_same, made, named, reasons
from tests.tasks.blocks import source_block

NUMBERS = named(pa.table({"number": [1, 2, 3]}))


def step(name: str, **kwargs: Any) -> PythonStep:
    return PythonStep(target=f"tests.contracts.steps.user_code:{name}", kwargs=kwargs)


@pytest.mark.parametrize(
    "name", ["yields_the_same_dict", "yields_the_same_array", "yields_the_same_list", "lists_one_array"]
)
def test_a_value_that_code_changes_after_it_gave_it_is_taken_as_it_was(name: str) -> None:
    found = [row["made"] for row in made(applied(step(name), NUMBERS))]
    assert [int(np.asarray(value).reshape(-1)[0]) for value in found] == [10, 20, 30]


@pytest.mark.parametrize("kind", ["Refills", "RefillsPictures"])
def test_an_array_that_code_fills_again_in_its_next_call_is_copied(kind: str) -> None:
    work = step(kind).build()
    first, second = (source_block(0, 3 * place, NUMBERS.slice(place, 2)) for place in (0, 1))
    blocks = [apply.apply(block, "preprocess", work) for block in (first, second)]
    found = [[int(np.asarray(row["made"]).reshape(-1)[0]) for row in made(block)] for block in blocks]
    assert found == [[10, 20], [20, 30]]


@pytest.mark.parametrize("values", user_code.KINDS)
def test_masked_and_missing_values_are_null_and_the_others_exact(values: str) -> None:
    found = [row["made"] for row in made(applied(step("with_nulls", values=values), NUMBERS))]
    assert found[1] is None
    assert found[0] is not None
    assert found[2] is not None


EXACT = {
    "largest": [2**63 - 1, -(2**63)],
    "decimal": [Decimal("0.10"), Decimal("12345678901234567890.12")],
    "nanoseconds": [np.datetime64(1, "ns"), np.datetime64(-1, "ns")],
    "years": [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "dates": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "times": [datetime.time(23, 59, 59, 999999), datetime.time(0)],
    "spans": [datetime.timedelta(microseconds=1), datetime.timedelta(days=-1)],
    "bytes": [b"", b"\x00\xff"],
    "texts": ["", "ä\x00😀"],
    "booleans": [True, False],
    "numpy booleans": [np.True_, np.False_],
    "float32": [np.float32(0.1), np.float32("inf")],
    "float16": [np.float16(0.1), np.float16("nan")],
    "uint8": [np.uint8(255), np.uint8(0)],
    "lists": [[1, None], []],
    "dicts": [{"a": 1, "b": [None]}, {"a": None, "b": []}],
    "zoned": [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.datetime(1, 1, 2, tzinfo=datetime.UTC)],
    "pandas nanoseconds": [pd.Timestamp(1), pd.Timestamp(-1)],
}
REFUSED = {
    "too large": [2**64, 1],
    "mixed": [1, "a"],
    "bytes beside text": ["a", b"a"],
    "fractions": [Fraction(1, 3), Fraction(1, 2)],
    "complex": [1j, 2j],
    "objects": [object(), object()],
    "half a surrogate": ["\ud800", "a"],
    "large beside fractions": [2**53 + 1, 0.5],
}


def outcome(values: list[Any]) -> tuple[list[Any], list[str]]:
    """Return the values that come out, and the reasons of those that do not."""
    user_code.RETURNED[:] = values
    try:
        block = applied(step("returns"), named(pa.table({"number": [1] * len(values)})))
    except ContractError as error:
        return [], [str(error)]
    return [row["made"] for row in made(block)], list(reasons(block).values())


@pytest.mark.parametrize("name", EXACT)
def test_values_come_back_as_they_were_returned(name: str) -> None:
    values, reasons_ = outcome(EXACT[name])
    assert reasons_ == []
    for found, expected in zip(values, EXACT[name], strict=True):
        if isinstance(expected, np.datetime64):
            assert pd.Timestamp(found) == pd.Timestamp(expected)
        elif isinstance(expected, np.generic):
            assert_same(np.asarray(found, expected.dtype), np.asarray(expected))
        else:
            assert found == expected
            assert getattr(found, "nanosecond", 0) == getattr(expected, "nanosecond", 0)


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_no_column_can_hold_are_refused_with_the_column_s_name(name: str) -> None:
    values, reasons_ = outcome(REFUSED[name])
    assert len(values) < len(REFUSED[name])
    assert reasons_
    assert all("'made'" in reason for reason in reasons_), reasons_
