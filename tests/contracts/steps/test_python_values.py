"""Values of the user's step: as they are at the return, null where masked, of exact types or refused.

`tests/contracts/models/test_user_values.py` has every type of value: steps and models share the code that takes them.
"""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply
from tests.contracts.steps import user_code
from tests.contracts.steps.adapter import applied, made, named, reasons
from tests.tasks.blocks import source_block

NUMBERS = named(pa.table({"number": [1, 2, 3]}))


def step(name: str) -> PythonStep:
    return PythonStep(target=f"tests.contracts.steps.user_code:{name}")


@pytest.mark.parametrize("name", ["yields_the_same_dict", "yields_the_same_array", "yields_the_same_list"])
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


MASK = [False, True, False]
TAKEN: dict[str, tuple[Any, list[Any]]] = {
    "masked numbers": (np.ma.masked_array([1, 2, 3], MASK), [1, None, 3]),
    "masked texts": (np.ma.masked_array(["a", "b", "c"], MASK), ["a", None, "c"]),
    "masked in a list": ([1.5, np.ma.masked, 2.5], [1.5, None, 2.5]),
    "largest numbers": ([2**63 - 1, -(2**63), None], [2**63 - 1, -(2**63), None]),
    "decimals": ([Decimal("0.10"), None, Decimal("12345678901234567890.12")],) * 2,
}
REFUSED: dict[str, list[Any]] = {
    "whole numbers beyond 64 bits": [2**70, 1, 2],
    "a text beside a number": [1, "a", 2],
    "complex numbers": [1j, 2j, None],
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_values_are_taken_exactly(name: str) -> None:
    user_code.RETURNED, expected = TAKEN[name]
    assert [row["made"] for row in made(applied(step("returns"), NUMBERS))] == expected


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_no_column_can_hold_are_refused_with_the_column_s_name(name: str) -> None:
    user_code.RETURNED = REFUSED[name]
    try:
        found = list(reasons(applied(step("returns"), NUMBERS)).values())
    except ContractError as error:
        found = [str(error)]
    assert found
    assert all("'made'" in reason for reason in found)
