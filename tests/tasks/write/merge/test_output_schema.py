"""Columns as readers get them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.tensors import to_arrow
from overnight.tasks.write.merge import output_schema as module
from overnight.tasks.write.merge.output_schema import common_schema, conform, publishable

F32 = pa.float32()


def published(values: Any) -> pa.ChunkedArray:
    return publishable(pa.table({"x": to_arrow(values)}))["x"]


def test_embeddings_of_one_size_are_fixed_size_lists():
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    column = published(values)
    assert column.type == pa.list_(F32, 2)
    assert column.to_pylist() == values.tolist()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.arange(120, dtype=np.int16).reshape(2, 3, 4, 5),
        np.zeros((3, 0)),
        np.zeros((3, 0, 2)),
        np.zeros((3, 2, 0)),
        np.array([["a", "bc"], ["d", ""]]),
        np.ones((2, 2), bool),
        np.ones((2, 2), np.float16),
        [np.zeros(2, np.float32), None, np.ones(3, np.float32)],
        [None, np.arange(6).reshape(2, 3), np.arange(2).reshape(1, 2), np.empty((0, 4), int), None],
        [np.arange(12, dtype=np.uint8).reshape(2, 3, 2), np.arange(4, dtype=np.uint8).reshape(1, 1, 4)],
        [np.array(["a"]), np.array(["bcd", "e"])],
        [np.array([1], np.uint8), np.array([0.5], np.float32)],
    ],
)
def test_arrays_of_any_rank_and_size_are_lists_of_their_values_and_missing_ones_null(values: Any):
    assert published(values).to_pylist() == [None if value is None else value.tolist() for value in values]


def test_a_column_of_nothing_is_null():
    assert published([None, None]).type == pa.null()
    assert len(publishable(pa.table({"x": to_arrow(np.zeros((2, 3)))[:0]}))) == 0


def test_arrays_of_unlike_rank_are_refused_by_name():
    with pytest.raises(ContractError, match="'x' has arrays of 1 and of 2"):
        published([np.zeros(2), np.zeros((2, 2))])


def test_more_values_than_a_list_s_offsets_reach_come_in_chunks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "VALUES_A_CHUNK", 10)
    for values in (np.arange(120).reshape(10, 3, 4), [np.zeros((i % 4, 3)) if i % 5 else None for i in range(20)]):
        column = published(values)
        assert column.num_chunks > 3
        assert column.to_pylist() == [None if value is None else value.tolist() for value in values]


def test_other_columns_stay_as_they_are():
    table = pa.table({"s": ["a"], "d": pa.array([{"a": 1}]), "n": pa.nulls(1)})
    assert publishable(table).equals(table)


RECORD = pa.struct([("a", F32)])


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (pa.null(), pa.list_(F32, 2), pa.list_(F32, 2)),
        (pa.list_(F32, 2), pa.list_(F32, 3), pa.list_(F32)),
        (pa.list_(F32, 2), pa.list_(F32), pa.list_(F32)),
        (pa.list_(F32, 2), pa.list_(pa.float64(), 2), pa.list_(pa.float64())),
        (pa.list_(pa.null()), pa.list_(F32), pa.list_(F32)),
        (pa.list_(pa.list_(F32)), pa.list_(pa.list_(F32, 2)), pa.list_(pa.list_(F32))),
        (RECORD, pa.struct([("b", F32)]), pa.struct([("a", F32), ("b", F32)])),
        (pa.list_(RECORD), pa.list_(pa.struct([("b", F32)])), pa.list_(pa.struct([("a", F32), ("b", F32)]))),
        (pa.int64(), F32, pa.float64()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), pa.decimal128(7, 3)),
    ],
    ids=str,
)
def test_types_that_can_be_reconciled_are_and_every_part_s_rows_can_be_cast(
    first: pa.DataType, second: pa.DataType, common: pa.DataType
):
    for pair in ((first, second), (second, first)):
        schema = common_schema(pa.schema([("x", kind)]) for kind in pair)
        assert schema.field("x").type == common or pair != (first, second)  # records keep their keys' first order
        for kind in pair:
            assert conform(pa.table({"x": pa.nulls(2, kind)}), schema).schema == schema


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int64(), pa.string()),
        (pa.bool_(), pa.int64()),
        (pa.timestamp("s", "UTC"), pa.timestamp("s")),
        (pa.list_(F32), pa.string()),
        (RECORD, F32),
    ],
    ids=str,
)
def test_types_that_cannot_be_reconciled_are_refused_by_name(first: pa.DataType, second: pa.DataType):
    with pytest.raises(ContractError, match=r"'x' is .* in some rows and .* in others"):
        common_schema(pa.schema([("x", kind)]) for kind in (first, second))


def test_parts_with_other_columns_are_filled_up_with_nulls():
    tables = [
        publishable(pa.table({"e": to_arrow(np.ones((2, 2), np.float32)), "a": [1, 2]})),
        publishable(pa.table({"b": ["x"], "e": to_arrow([None])})),
        publishable(pa.table({"e": to_arrow(np.ones((1, 3), np.float32))})),
    ]
    schema = common_schema(table.schema for table in tables)
    found = pa.concat_tables([conform(table, schema) for table in tables]).to_pydict()
    assert found == {"e": [[1, 1], [1, 1], None, [1, 1, 1]], "a": [1, 2, None, None], "b": [None, None, "x", None]}
