"""What user code gets is its own to change, and a column that it lacks is named beside those that there are."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.rows import tensors
from overnight.tasks.rows.user_function import name_columns, outcome_of

COLUMNS = {
    "texts": pa.array(["a", None, ""]),
    "pairs": pa.array([[1, 2], [3, 4], [5, 6]]),
    "images": tensors.to_arrow([np.zeros((2, 2), np.uint8), np.ones((1, 2), np.uint8)] * 2)[:3],
}


@pytest.mark.parametrize(("name", "value"), [("texts", "z"), ("pairs", 7), ("images", 7)])
def test_a_column_changed_in_place_is_seen_to_be_changed_and_its_source_is_as_it_was(name: str, value: Any) -> None:
    def change(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if name == "texts":
            batch[name][0] = value
        else:
            batch[name][0][...] = value
        return batch

    table = pa.table(COLUMNS)
    found = outcome_of(change, table, "infer", "model").columns
    assert list(found) == [name]
    after = tensors.to_numpy(pa.chunked_array([tensors.to_arrow(found[name])]))
    before = tensors.to_numpy(table[name])
    assert np.ravel(after[0])[0] == value != np.ravel(before[0])[0]
    assert [np.array_equal(after[row], before[row]) for row in (1, 2)] == [True, True]


@pytest.mark.parametrize(
    ("count", "missing", "message"),
    [
        (2, "lable", "'lable'; the columns are c0, c1"),
        (31, "lable", f"'lable'; the columns are {', '.join(f'c{n}' for n in range(30))} and 1 more"),
        (2, "c1", "'c1'"),  # of a dict of the user's own
        (2, 5, "5"),
    ],
)
def test_a_missing_column_is_named_beside_those_of_the_batch(count: int, missing: Any, message: str) -> None:
    error = KeyError(missing)
    for _ in range(2):
        name_columns(error, [f"c{n}" for n in range(count)])
    assert str(error) == message


def test_a_column_of_another_number_of_values_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContractError, match="column 'y' has 2 values for a batch of 3 rows") as caught:
        outcome_of(lambda batch: {"y": [1, 2]}, pa.table(COLUMNS), "infer", "model")
    assert caught.value.stage == "infer"


def test_columns_that_are_asked_for_as_cells_are_python_values_in_memory_of_their_own() -> None:
    held = [np.array([1, 2]), np.array([3]), [4]]
    made = {"x": held, "y": np.array([[1, 2], [3, 4], [5, 6]]), "z": np.zeros(3)}
    found = outcome_of(lambda batch: made, pa.table(COLUMNS), "infer", "model", as_cells=["x", "y"]).columns
    held[0][0] = 9
    assert [[int(entry) for entry in cell] for cell in found["x"]] == [[1, 2], [3], [4]]
    assert [cell.tolist() for cell in found["y"]] == [[1, 2], [3, 4], [5, 6]]
    assert isinstance(found["z"], pa.Array)


def test_a_column_of_views_becomes_one_whose_rows_can_be_selected() -> None:
    views = pa.array(["a", None, "c"], pa.string_view())
    column = outcome_of(lambda batch: {"view": views}, pa.table(COLUMNS), "infer", "model").columns["view"]
    assert column.take(pa.array([2, 1])).to_pylist() == ["c", None]
