"""The block: hidden columns, the state of each row, output rows, and notes of columns that are not published."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.blocks import END, FILTERED, QUARANTINED
from tests.tasks.blocks import numbered_block as block


def output_rows() -> pa.Table:
    """Three source rows, the first of them filtered; the others became two rows and one."""
    table = pa.table({"row_id": ["r1#0", "r1#1", "r2#0"], "y": [10, 11, 20]})
    return blocks.with_outputs(blocks.filtered(block(3), np.array([0])), table, np.array([1, 1, 2]))


def test_live_rows_come_without_hidden_columns_and_with_their_places() -> None:
    rows, places = blocks.live_rows(blocks.filtered(block(3), np.array([1])))
    assert (rows.to_pydict(), places.tolist()) == ({"row_id": ["r0", "r2"], "x": [0, 2]}, [0, 2])
    rows, places = blocks.live_rows(output_rows())
    assert (rows["y"].to_pylist(), places.tolist()) == ([10, 11, 20], [1, 1, 2])
    assert blocks.live_block(output_rows())["__row"].to_pylist() == [11, 12]


def test_output_rows_are_counted_by_their_live_source_rows() -> None:
    assert blocks.counts(output_rows()).tolist() == [1, 2, 1]
    assert blocks.rows_each(output_rows()) == 1.5
    assert blocks.counts(block(2)).tolist() == [1, 1]
    assert blocks.rows_each(blocks.filtered(block(2), np.array([0, 1]))) == 1.0


@pytest.mark.parametrize("make", [lambda: block(3, y=[10, 11, 20]), output_rows])
def test_columns_are_dropped_noted_and_ordered_in_rows_and_in_output_rows(make) -> None:
    assert "y" not in blocks.live_rows(blocks.without(make(), ["y", "unknown"]))[0].column_names
    noted = blocks.leaving_out(make(), ["y"])
    assert blocks.left_out(noted) == ["y"]
    assert not set(blocks.visible(noted).column_names) & {"y", "__left_out_y"}
    ordered = blocks.live_rows(blocks.ordered(make(), ["y"]))[0]
    assert ordered.column_names == ["row_id", "y"]
    assert ordered["y"].to_pylist() == [10, 11, 20]


def test_settled_rows_have_their_state_identity_and_reason() -> None:
    end = blocks.settled_block({}, 3, [7], END)
    assert end.select(["row_id", "__unit", "__row", "__state"]).to_pylist() == [
        {"row_id": None, "__unit": 3, "__row": 7, "__state": END}
    ]
    errors = [ValueError("first"), KeyError("second")]
    lost = blocks.quarantined_block({"row_id": ["a", "b"], "uri": ["/a", "/b"]}, 2, [4, 9], "ingest", errors)
    names = ["row_id", "uri", "__unit", "__row", "__state", "__stage", "__error_type", "__error_message"]
    assert [tuple(row.values()) for row in lost.select(names).to_pylist()] == [
        ("a", "/a", 2, 4, QUARANTINED, "ingest", "ValueError", "first"),
        ("b", "/b", 2, 9, QUARANTINED, "ingest", "KeyError", "'second'"),
    ]


def test_a_whole_block_is_quarantined_without_its_data_and_without_rows_that_ended_before() -> None:
    done = blocks.quarantine(blocks.filtered(block(3), np.array([1])), ValueError("poison"), "infer")
    assert done["__state"].to_pylist() == [QUARANTINED, FILTERED, QUARANTINED]
    assert done["__error_message"].to_pylist() == ["poison", None, "poison"]
    assert blocks.visible(done).column_names == ["row_id"]


def test_seconds_and_bytes_are_added_to_the_rows_that_were_worked_on() -> None:
    done = blocks.measured(block(4), np.array([0, 2]), "infer", 3.0, 8)
    done = blocks.measured(done, np.array([2]), "infer", 1.0, 2)
    assert done["__infer_seconds"].to_pylist() == [1.5, None, 2.5, None]
    assert done["__infer_bytes"].to_pylist() == [4.0, None, 6.0, None]
    assert blocks.seconds_a_row(done, "infer") == 2.0
    assert blocks.seconds_a_row(done, "preprocess") == 0.0


def test_the_work_on_all_rows_of_a_block_is_measured_in_blocks_that_join_others() -> None:
    both = rebatch.joined([blocks.measured(block(2), np.arange(2), "infer", 3.0, 8), block(1)])
    assert both["__infer_seconds"].to_pylist() == [1.5, 1.5, None]
    again = blocks.measured(both, np.arange(3), "infer", 3.0, 3)
    assert again["__infer_seconds"].to_pylist() == [2.5, 2.5, 1.0]
    assert again["__infer_bytes"].to_pylist() == [5.0, 5.0, 1.0]


def test_hidden_columns_take_bytes_only_for_the_identity_of_rows_until_they_have_values() -> None:
    hidden = block(1000).select(blocks.HIDDEN.names)
    assert hidden.nbytes == 1000 * (8 + 8 + 1)
    joined = rebatch.joined([hidden, blocks.HIDDEN.empty_table()])
    assert joined.schema == blocks.HIDDEN


def test_values_are_scattered_to_their_places_with_null_elsewhere() -> None:
    assert blocks.scatter([1, 2], np.array([1, 3]), 4).to_pylist() == [None, 1, None, 2]
    assert blocks.scatter(pa.chunked_array([[1], [2]]), np.array([0, 1]), 2).to_pylist() == [1, 2]


def test_a_column_is_replaced_in_its_place_or_added_behind() -> None:
    table = pa.table({"a": [1], "b": [2]})
    assert blocks.with_column(table, "a", pa.array([3])).to_pydict() == {"a": [3], "b": [2]}
    assert blocks.with_column(table, "c", pa.array([3])).column_names == ["a", "b", "c"]


def test_only_columns_of_the_contract_are_hidden() -> None:
    hidden = [name for name in (*blocks.HIDDEN.names, "__left_out_x", "row_id", "__mine") if blocks.is_hidden(name)]
    assert hidden == [*blocks.HIDDEN.names, "__left_out_x"]


@pytest.mark.parametrize(("name", "expected"), [("row_id", "source_row_id"), ("uri", "source_uri"), ("x", "x")])
def test_data_takes_no_name_of_overnight(name: str, expected: str) -> None:
    assert blocks.data_name(name) == expected
