"""The types of columns whose entries become rows, and of the entries."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.preprocess.steps.explode import Explode
from overnight.tasks.rows import tensors
from overnight.tasks.rows.blocks import live_rows
from tests.contracts.steps.adapter import applied, named


def exploded(values: pa.Array) -> pa.ChunkedArray:
    return live_rows(applied(Explode(columns=["x"]), named(pa.table({"x": values}))))[0]["x"]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.decimal128(20, 2)), pa.large_list(pa.int64()), pa.list_(pa.string(), 2)], ids=str
)
def test_entries_keep_their_type(kind: pa.DataType) -> None:
    assert exploded(pa.array([["1", "2"]], pa.list_(pa.string())).cast(kind)).type == kind.value_type


@pytest.mark.parametrize(
    "cells",
    [
        np.array([[1, 2], [3, 4]], np.float32),
        [np.array([1, 2], np.float32), None, np.array([3], np.float32)],
        np.arange(12).reshape(2, 2, 3),
        [np.ones((1, 3)), np.zeros((2, 2))],
    ],
    ids=["vectors", "vectors of lengths", "arrays", "arrays of shapes"],
)
def test_the_entries_of_an_array_are_its_parts(cells: Any) -> None:
    column = exploded(tensors.to_arrow(cells).cast(tensors.TENSOR))
    found = tensors.to_numpy(column) if column.type == tensors.TENSOR else column.to_pylist()
    parts = [part for cell in cells if cell is not None for part in cell]
    assert [np.asarray(part).tolist() for part in found] == [part.tolist() for part in parts]
    assert parts[0].ndim or column.type == pa.float32()
