"""Equal rows have equal keys in any table, and rows that differ have different ones."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.memory.keys import model_key, row_keys
from overnight.tasks.rows.tensors import to_arrow

VECTORS = [[1.0, 2.0], None, [None, 2.0], [2.0, 1.0], [-0.0, 0.0]]
COLUMNS: dict[str, Any] = {
    "text": pa.array(["a", None, "", "ä", "b"]),
    "bytes": pa.array([b"a", None, b"", b"\0", b"aa"]),
    "number": pa.array([1, None, 2, -1, 0]),
    "flag": pa.array([True, None, False, True, False]),
    "vector": pa.array(VECTORS, pa.list_(pa.float32(), 2)),
    "list": pa.array([[1], None, [], [1, 2], [None]]),
    "struct": pa.array([{"a": 1}, None, {"a": 2}, {"a": None}, {"a": 3}]),
    "time": pa.array([1, None, 2, 3, 4], pa.timestamp("ns", "UTC")),
    "array": to_arrow([np.zeros((2, 2), np.uint8), None, np.zeros(4, np.uint8), np.ones(4, np.uint8), np.zeros(4)]),
    "category": pa.array(["a", None, "c", "a", "b"]).dictionary_encode(),
    "nothing": pa.nulls(5),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(order=st.permutations(range(5)), start=st.integers(0, 4), length=st.integers(1, 5))
def test_a_row_has_one_key_wherever_it_is(name: str, order: list[int], start: int, length: int) -> None:
    table = pa.table({name: COLUMNS[name]})
    keys = row_keys(table)
    assert keys is not None
    assert row_keys(table.take(order)) == [keys[row] for row in order]
    assert row_keys(table.slice(start, length)) == keys[start : start + length]
    assert row_keys(pa.concat_tables([table.slice(2), table.slice(0, 2)])) == [*keys[2:], *keys[:2]]


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in ("flag", "category", "nothing")])
def test_different_values_have_different_keys(name: str) -> None:
    keys = row_keys(pa.table({name: COLUMNS[name]}))
    assert keys is not None
    assert len(set(keys)) == 5


def test_a_key_has_the_names_the_types_and_the_places_of_nulls() -> None:
    def key(**columns: Any) -> bytes:
        [digest] = row_keys(pa.table(columns)) or []
        return digest

    one = pa.array([1])
    different = {
        key(a=one), key(b=one), key(a=one.cast(pa.int32())), key(a=one, b=one),
        key(a=pa.array(["x"]), b=pa.array([None], pa.string())),
        key(a=pa.array([None], pa.string()), b=pa.array(["x"])),
        key(a=pa.array(["xy"]), b=pa.array([""])), key(a=pa.array(["x"]), b=pa.array(["y"])),
    }  # fmt: skip
    assert len(different) == 8


@pytest.mark.parametrize("kind", [
    pa.list_(pa.float64()), pa.struct({"v": pa.float64()}), pa.float64(), pa.list_(pa.float64(), 1),
], ids=str)  # fmt: skip
def test_signs_of_zero_have_different_keys(kind: pa.DataType) -> None:
    zeros: list[Any] = [0.0, -0.0]
    if pa.types.is_struct(kind):
        zeros = [{"v": zero} for zero in zeros]
    elif pa.types.is_nested(kind):
        zeros = [[zero] for zero in zeros]
    keys = row_keys(pa.table({"c": pa.array(zeros, kind)}))
    assert keys
    assert len(set(keys)) == 2


def test_arrays_within_a_value_have_the_keys_of_their_types() -> None:
    arrays = [to_arrow([np.zeros(2, kind)]) for kind in (np.float32, np.float64)]
    keys = {tuple(row_keys(pa.table({"c": pa.StructArray.from_arrays([array], ["a"])})) or ()) for array in arrays}
    assert len(keys) == 2


def test_a_type_without_a_digest_has_no_keys() -> None:
    assert row_keys(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})) is None


def test_a_model_has_the_key_of_its_settings_and_files() -> None:
    assert model_key({"kind": "a", "x": 1}, {"f": "1"}) == model_key({"x": 1, "kind": "a"}, {"f": "1"})
    keys = {model_key({"kind": kind, "x": x}, {"f": version}) for kind in "ab" for x in (1, 2) for version in "12"}
    assert len(keys) == 8
    assert model_key({"kwargs": {"token": "a"}}, {}) != model_key({"kwargs": {"token": "b"}}, {}), (
        "no secret is left out"
    )
