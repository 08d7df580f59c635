"""A row for each entry of a list, none for an empty one, and lists that do not fit quarantine their row alone."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.explode import Explode
from overnight.tasks.rows import apply, blocks, tensors
from tests.tasks.blocks import source_block


def exploded(columns: list[str], table: pa.Table) -> pa.Table:
    return apply.apply(source_block(0, 0, table), "preprocess", Explode(columns=columns).build())


def test_each_entry_is_a_row_and_the_other_columns_are_repeated() -> None:
    table = pa.table({"row_id": ["a#0", "a#1", "a#2"], "word": [["x", None], [], None], "n": [1, 2, 3]})
    done = exploded(["word"], table)
    assert blocks.live_rows(done)[0].to_pydict() == {"row_id": ["a#0.0", "a#0.1"], "word": ["x", None], "n": [1, 1]}
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.FILTERED, blocks.FILTERED]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.decimal128(20, 2)), pa.large_list(pa.int64()), pa.list_(pa.string(), 2)], ids=str
)
def test_entries_keep_their_type(kind: pa.DataType) -> None:
    table = pa.table({"row_id": ["a#0"], "x": pa.array([["1", "2"]], pa.list_(pa.string())).cast(kind)})
    assert blocks.live_rows(exploded(["x"], table))[0]["x"].type == kind.value_type


def test_lists_of_different_lengths_quarantine_their_row() -> None:
    table = pa.table({"row_id": ["a#0", "a#1"], "x": [[1, 2], [3]], "y": [["p"], ["q"]]})
    done = exploded(["x", "y"], table)
    assert done["__state"].to_pylist() == [blocks.QUARANTINED, blocks.LIVE]
    assert "2 entries in 'x' and 1 in 'y'" in done["__error_message"][0].as_py()
    assert blocks.live_rows(done)[0].to_pydict() == {"row_id": ["a#1.0"], "x": [3], "y": ["q"]}


@pytest.mark.parametrize(
    ("vectors", "entries"),
    [
        (np.array([[1, 2], [3, 4]], np.float32), [1, 2, 3, 4]),
        ([np.array([1, 2], np.float32), None, np.array([3], np.float32)], [1, 2, 3]),
        ([None, None], []),
    ],
)
def test_the_entries_of_a_vector_are_numbers_of_its_type(vectors: Any, entries: list[float]) -> None:
    table = pa.table({"row_id": [f"a#{row}" for row in range(len(vectors))], "x": tensors.to_arrow(vectors)})
    made = blocks.live_rows(exploded(["x"], table.set_column(1, "x", table["x"].cast(tensors.TENSOR))))[0]
    assert (made["x"].to_pylist() if entries else []) == entries
    assert not entries or made["x"].type == pa.float32()


@pytest.mark.parametrize(
    "cells", [np.arange(12).reshape(2, 2, 3), [np.ones((1, 3)), np.zeros((2, 2))]], ids=["of one shape", "of several"]
)
def test_the_entries_of_an_array_are_its_parts(cells: Any) -> None:
    made = blocks.live_rows(exploded(["x"], pa.table({"row_id": ["a#0", "a#1"], "x": tensors.to_arrow(cells)})))[0]
    expected = [part.tolist() for cell in cells for part in cell]
    assert [part.tolist() for part in tensors.to_numpy(made["x"])] == expected


@pytest.mark.parametrize("values", [[1], ["a"], [{"a": 1}]], ids=str)
def test_what_is_no_list_is_refused(values: list) -> None:
    told = (
        r"explode: expected lists in column 'x', found .*\. Make lists of it in derive_columns, or use another column\."
    )
    with pytest.raises(ContractError, match=told):
        exploded(["x"], pa.table({"row_id": ["a#0"], "x": values}))
