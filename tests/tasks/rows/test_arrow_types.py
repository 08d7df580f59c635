"""The types that tables in files lack are replaced without a change of values, at every depth."""

import pyarrow as pa
import pytest

from overnight.tasks.rows.arrow_types import is_bytes, is_list, is_text, kinds_in, leaves, plain_column

VIEW, TEXTS = pa.string_view(), pa.dictionary(pa.int8(), pa.string())
ENDS = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["a", None], VIEW), pa.string()),
        (pa.array([b"a", None], pa.binary_view()), pa.binary()),
        (ENDS, pa.string()),
        (pa.array([["a"], None], pa.list_view(VIEW)), pa.list_(pa.string())),
        (pa.array([["a"], None], pa.list_(VIEW)), pa.list_(pa.string())),
        (pa.array([["a", "b"]], pa.list_(VIEW, 2)), pa.list_(pa.string(), 2)),
        (pa.array([{"a": "x"}], pa.struct([("a", VIEW)])), pa.struct([("a", pa.string())])),
        (pa.array([[("k", "x")]], pa.map_(VIEW, VIEW)), pa.map_(pa.string(), pa.string())),
        (pa.DictionaryArray.from_arrays([0, None], pa.array(["a"], VIEW)), pa.string()),
        (pa.array(["a", None]).cast(TEXTS), TEXTS),
        (pa.array([[1], None], pa.large_list(pa.int8())), pa.large_list(pa.int8())),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_views_and_run_ends_become_plain_and_other_types_stay(column: pa.Array, kind: pa.DataType) -> None:
    found = plain_column(pa.chunked_array([column]))
    assert found.type == kind
    assert found.to_pylist() == column.to_pylist()


def test_innermost_values_are_those_of_lists_structs_maps_and_dictionaries() -> None:
    kind = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.string()))])
    array = pa.array([{"a": [1, 2], "b": [("k", "x")]}, {"a": [3], "b": [("l", "y")]}], kind)
    assert [leaf.to_pylist() for leaf in leaves(array[1:])] == [[3], ["l"], ["y"]]
    assert [leaf.to_pylist() for leaf in leaves(pa.array(["x", None]).cast(TEXTS))] == [["x", None]]
    assert list(map(str, kinds_in(pa.list_(pa.struct([("a", pa.int8())]))))) == [
        "list<item: struct<a: int8>>", "struct<a: int8>", "int8",
    ]  # fmt: skip
    union = pa.dense_union([pa.field("a", pa.int8())])
    assert list(kinds_in(union)) == [union], "none inside of a union"


def test_texts_bytes_and_lists_are_known_in_each_of_their_types() -> None:
    texts = [pa.string(), pa.large_string(), VIEW]
    contents = [pa.binary(), pa.large_binary(), pa.binary(3), pa.binary_view()]
    lists = [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)]
    kinds = [*texts, *contents, *lists, pa.int8(), pa.list_view(pa.int8())]
    assert [kind for kind in kinds if is_text(kind)] == texts
    assert [kind for kind in kinds if is_bytes(kind)] == contents
    assert [kind for kind in kinds if is_list(kind)] == lists
