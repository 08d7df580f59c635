"""What user code returns is compared with what it got, by column."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.rows import tensors, user_function

SOURCE_COLUMNS = {
    "numbers": pa.array([1, None, 3]),
    "text": pa.array(["a", None, ""]),
    "lists": pa.array([[1, 2], [3], None]),
    "even": pa.array([[1, 2], [3, 4], [5, 6]]),
    "words": pa.array([["a", "b"], [], ["c"]]),
    "record": pa.array([{"a": 1, "b": [None]}, None, {"a": 2, "b": []}]),
    "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "time": pa.array([datetime.datetime(2024, 1, 1), None, None], pa.timestamp("us", "UTC")),
    "money": pa.array([decimal.Decimal("1.50"), None, None], pa.decimal128(9, 2)),
    "nan": pa.array([float("nan"), None, 0.0]),
    "bytes": pa.array([b"\xff", None, b""]),
    "image": tensors.to_arrow([np.zeros((2, 2), np.uint8), np.zeros((1, 2), np.uint8), None]),
}


@pytest.mark.parametrize("name", SOURCE_COLUMNS)
def test_a_column_handed_back_as_it_came_keeps_its_type(name: str):
    table = pa.table({name: SOURCE_COLUMNS[name]})
    assert user_function.outcome_of(lambda batch: batch, table, "infer", "model").columns == {}


def test_a_column_changed_in_place_is_seen_to_be_changed():
    table = pa.table({"image": SOURCE_COLUMNS["image"], "text": SOURCE_COLUMNS["text"], "even": SOURCE_COLUMNS["even"]})

    def change(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        batch["image"][0][0, 0] = 9
        batch["text"][0] = "z"
        batch["even"][1][0] = 7
        return batch

    changed = user_function.outcome_of(change, table, "infer", "model").columns
    found = {name: tensors.to_numpy(pa.chunked_array([tensors.to_arrow(values)])) for name, values in changed.items()}
    assert found["image"][0][0, 0] == 9
    assert found["text"][0] == "z"
    assert found["even"][1].tolist() == [7, 4]
    assert table["text"][0].as_py() == "a"
    assert tensors.to_numpy(table["image"])[0][0, 0] == 0


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2, 3], "expected a dict of arrays, found list"),
        ({"y": [1, 2]}, "2 values for a batch of 3 rows"),
        ({"y": 5}, "a single int"),
        ({"__state": [1, 2, 3]}, "not a usable column name"),
        ({5: [1, 2, 3]}, "not a usable column name"),
    ],
)
def test_a_broken_contract_is_told_in_the_user_s_words(returned: Any, message: str):
    with pytest.raises(ContractError, match=message):
        user_function.outcome_of(lambda batch: returned, pa.table({"x": [1, 2, 3]}), "infer", "model")
