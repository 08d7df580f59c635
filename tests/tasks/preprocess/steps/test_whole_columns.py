"""select_columns, drop_columns and rename_columns: the order of what they leave, and names that are not free."""

import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.whole_columns import DropColumns, RenameColumns, SelectColumns
from tests.contracts.steps.adapter import applied, made, named

TABLE = named(pa.table({"text": ["x y", "z"], "label": ["cat", "dog"], "size": [1, None]}))


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (SelectColumns(columns=["size", "row_id", "size"]), ["row_id", "size"]),
        (DropColumns(columns=["text"]), ["row_id", "label", "size"]),
        (RenameColumns(columns={"label": "species"}), ["row_id", "text", "species", "size"]),
    ],
)
def test_columns_keep_their_order(step: PreprocessStep, names: list[str]) -> None:
    assert list(made(applied(step, TABLE))[0]) == names


@pytest.mark.parametrize(("names", "words"), [({"labl": "x"}, "did you mean label"), ({"label": "size"}, "'size'")])
def test_a_column_that_is_not_there_or_there_already_is_named(names: dict[str, str], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        applied(RenameColumns(columns=names), TABLE)
