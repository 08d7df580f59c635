"""The files of a Delta table with mapped columns: their names by name or number, also inside, and deleted rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.ingest.formats.delta_layout import NAME, NUMBER, NUMBER_IN_FILE, Layout


def mapped(name: str, kind: pa.DataType, number: int) -> pa.Field:
    """A field of the table, which files of the mode `name` have as `col-<number>`."""
    return pa.field(name, kind, metadata={NAME: f"col-{number}".encode(), NUMBER: str(number).encode()})


def stored(number: int, kind: pa.DataType, name: str) -> pa.Field:
    return pa.field(name, kind, metadata={NUMBER_IN_FILE: str(number).encode()})


def struct_of(first: pa.Field, *others: pa.Field) -> pa.DataType:
    return pa.struct([first, *others])


TABLE = pa.schema(
    [
        mapped("n", pa.int64(), 1),
        mapped("places", pa.list_(struct_of(mapped("x", pa.int64(), 3), mapped("new", pa.string(), 4))), 2),
        mapped("by_name", pa.map_(pa.string(), struct_of(mapped("y", pa.int64(), 6))), 5),
        mapped("later", pa.string(), 7),
    ]
)
PLACES, BY_NAME = [[{"x": 1}, None], None, []], [[("a", {"y": 1})], None, []]


def in_file(mode: str) -> pa.Table:
    """A file whose columns have other places, and in the mode `id` names of another writer."""
    names = {number: f"col-{number}" if mode == "name" else f"other-{number}" for number in range(8)}
    x, y = stored(3, pa.int64(), names[3]), stored(6, pa.int64(), names[6])
    kinds = {5: pa.map_(pa.string(), pa.struct([y])), 2: pa.list_(pa.struct([x])), 1: pa.int64()}

    def under(value: Any) -> Any:
        if isinstance(value, dict):
            return {names[{"x": 3, "y": 6}[name]]: inner for name, inner in value.items()}
        if isinstance(value, tuple):
            return value[0], under(value[1])
        return [under(inner) for inner in value] if isinstance(value, list) else value

    schema = pa.schema([stored(number, kind, names[number]) for number, kind in kinds.items()])
    rows = {5: under(BY_NAME), 2: under(PLACES), 1: [7, 8, 9]}
    return pa.table({names[number]: pa.array(rows[number], kinds[number]) for number in kinds}, schema)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_have_the_tables_names_at_every_depth_and_nulls_stay(mode: str) -> None:
    layout, file = Layout(TABLE, mode, {}), in_file(mode)
    names = layout.stored_names(TABLE.names, file.schema)
    assert list(names) == ["n", "places", "by_name"], "the file has no column `later`"
    found = layout.renamed(file.slice(0, 3), names)
    assert found["n"].to_pylist() == [7, 8, 9]
    assert found["places"].to_pylist() == [[{"x": 1, "new": None}, None], None, []]
    assert found["by_name"].to_pylist() == BY_NAME


def test_a_file_without_rows_has_the_types_of_the_table() -> None:
    layout, file = Layout(TABLE, "name", {}), in_file("name")
    found = layout.renamed(file.schema.empty_table(), layout.stored_names(["places"], file.schema))
    assert found.schema.field("places").type.value_type.field("new").type == pa.string()


def test_deleted_rows_are_found_by_a_uri_of_any_scheme() -> None:
    layout = Layout(TABLE, "", {"bucket/a.parquet": np.array([True, False])})
    found = layout.deleted_rows("s3a://bucket/a.parquet")
    assert found is not None
    assert found.tolist() == [True, False]
    assert layout.deleted_rows("s3://bucket/b.parquet") is None
