"""select_columns, drop_columns and rename_columns: whole columns, and what is left of a row that names it."""

import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.columns import DropColumns, RenameColumns, SelectColumns
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.rows import apply, blocks
from tests.tasks.blocks import source_block

TABLE = pa.table({"row_id": ["a#0", "a#1"], "text": ["x y", "z"], "label": ["cat", "dog"], "size": [1, None]})


def after(*steps: PreprocessStep) -> pa.Table:
    block = source_block(0, 0, TABLE)
    for step in steps:
        block = apply.apply(block, "preprocess", step.build())
    return blocks.live_rows(block)[0]


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (SelectColumns(columns=["size", "text"]), ["row_id", "size", "text"]),
        (SelectColumns(columns=["size", "row_id", "size"]), ["row_id", "size"]),
        (DropColumns(columns=["text"]), ["row_id", "label", "size"]),
        (RenameColumns(columns={"label": "species"}), ["row_id", "text", "species", "size"]),
        (RenameColumns(columns={"text": "label", "label": "text"}), ["row_id", "label", "text", "size"]),
    ],
)
def test_the_columns_are_those_in_that_order_and_their_values_stay(step: PreprocessStep, names: list[str]) -> None:
    done = after(step)
    assert done.column_names == names
    assert done["size"].to_pylist() == [1, None]
    assert done["row_id"].to_pylist() == ["a#0", "a#1"]
    if isinstance(step, RenameColumns):
        for old, new in step.columns.items():
            assert done[new].to_pylist() == TABLE[old].to_pylist()


def test_they_work_on_the_rows_that_a_step_made_of_others() -> None:
    done = after(SplitText(size=2), RenameColumns(columns={"text": "word"}), SelectColumns(columns=["word"]))
    assert done.to_pydict() == {"row_id": ["a#0.0", "a#0.1", "a#1.0"], "word": ["x", "y", "z"]}


@pytest.mark.parametrize(
    "step",
    [SelectColumns(columns=["labl"]), DropColumns(columns=["labl"]), RenameColumns(columns={"labl": "species"})],
)
def test_a_column_that_is_not_there_is_named_with_one_that_is_near(step: PreprocessStep) -> None:
    with pytest.raises(ContractError, match=r"expected a column 'labl', found .*did you mean label"):
        after(step)


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ContractError, match="expected a name that no column has, found 'size'"):
        after(RenameColumns(columns={"label": "size"}))


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
def test_what_names_rows_stays_and_names_are_told_apart(leaf: type[PreprocessStep], columns: object) -> None:
    with pytest.raises(ValidationError):
        leaf.model_validate({"columns": columns})
