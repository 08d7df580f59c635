"""Adapters of the steps on whole columns, whose values are those that went in."""

import pyarrow as pa

from overnight.tasks.preprocess.steps.whole_columns import DropColumns, RenameColumns, SelectColumns
from tests.contracts.steps.adapter import StepAdapter

ROWS = pa.table({"text": ["x", None], "label": ["cat", ""], "size": pa.array([1, None], pa.uint8())})
VALUES = ROWS.to_pylist()

ADAPTERS = {
    "select_columns": StepAdapter(
        SelectColumns(columns=["size", "text"]), ROWS, [[{"size": r["size"], "text": r["text"]}] for r in VALUES]
    ),
    "drop_columns": StepAdapter(
        DropColumns(columns=["text"]), ROWS, [[{"label": r["label"], "size": r["size"]}] for r in VALUES]
    ),
    "rename_columns": StepAdapter(
        RenameColumns(columns={"text": "label", "label": "text"}), ROWS,
        [[{"label": r["text"], "text": r["label"], "size": r["size"]}] for r in VALUES],
    ),
}  # fmt: skip
