"""Steps refuse columns that they cannot read by name, and number the rows that they make of a row."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.input_columns import files_of, lists_in, numbered, require_columns

TABLE = pa.table({"label": ["cat"], "tags": [["a", "b"]], "file": [b"x"]})


def test_rows_made_of_a_row_are_numbered_from_zero() -> None:
    sources, numbers = numbered(np.array([2, 0, 3]))
    assert (sources.tolist(), numbers) == ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])


def test_a_missing_column_is_named_beside_the_nearest() -> None:
    with pytest.raises(ContractError, match=r"step: expected a column 'labl', found label, .*\(did you mean label\?\)"):
        require_columns(TABLE, ["labl"], "step")


def test_lists_and_files_are_taken_and_other_types_are_refused() -> None:
    assert lists_in(TABLE, "tags", "step").to_pylist() == [["a", "b"]]
    assert files_of(TABLE, "file", "step: expected a file").to_pylist() == [b"x"]
    with pytest.raises(ContractError, match="expected lists in column 'label', found string"):
        lists_in(TABLE, "label", "step")
    with pytest.raises(ContractError, match=r"expected a file \(binary.*\) in column 'label', found string"):
        files_of(TABLE, "label", "step: expected a file")
