"""A row for each entry of a list, none for an empty one, and lists that do not fit quarantine their row alone."""

import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.explode import Explode
from overnight.tasks.rows import apply, blocks
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


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(ContractError, match="expected lists in column 'x', found int64"):
        exploded(["x"], pa.table({"row_id": ["a#0"], "x": [1]}))
