"""select_columns, drop_columns and rename_columns: orders and names that a job may ask for, and may not."""

import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.columns import DropColumns, RenameColumns, SelectColumns
from overnight.tasks.rows import apply
from overnight.tasks.rows.blocks import live_rows
from tests.tasks.blocks import source_block

TABLE = pa.table({"row_id": ["a#0", "a#1"], "text": ["x y", "z"], "label": ["cat", "dog"], "size": [1, None]})


def after(step: PreprocessStep) -> pa.Table:
    return live_rows(apply.apply(source_block(0, 0, TABLE), "preprocess", step.build()))[0]


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (SelectColumns(columns=["size", "row_id", "size"]), ["row_id", "size"]),
        (DropColumns(columns=["text"]), ["row_id", "label", "size"]),
        (RenameColumns(columns={"label": "species"}), ["row_id", "text", "species", "size"]),
    ],
)
def test_columns_keep_their_order(step: PreprocessStep, names: list[str]) -> None:
    assert after(step).column_names == names


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (RenameColumns(columns={"labl": "species"}), "did you mean label"),
        (RenameColumns(columns={"label": "size"}), "found 'size'"),
    ],
)
def test_a_column_that_is_not_there_or_there_already_is_named(step: PreprocessStep, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        after(step)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("leaf", "columns"),
    [
        (DropColumns, ["row_id"]),
        (RenameColumns, {"uri": "path"}),
        (RenameColumns, {"label": "row_id"}),
        (RenameColumns, {"label": "__state"}),
        (RenameColumns, {"label": "a", "text": "a"}),
        (SelectColumns, []),
    ],
)
def test_what_names_rows_stays_and_two_columns_need_two_names(leaf: type[PreprocessStep], columns: object) -> None:
    with pytest.raises(ValidationError):
        leaf.model_validate({"columns": columns})
