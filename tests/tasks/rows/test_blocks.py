"""The row contract: one bad row costs one row, and values cross unchanged."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.rows import apply, blocks, rebatch, result, tensors, user_function
from overnight.tasks.rows.error_text import MESSAGE_LIMIT, error_message
from tests.tasks.blocks import source_block


def block(count: int, **columns: Any) -> pa.Table:
    names = pa.array([f"r{i}" for i in range(count)], pa.string())
    return source_block(4, 10, pa.table({"row_id": names, "x": pa.array(range(count), pa.int64()), **columns}))


def states(found: pa.Table) -> list[int]:
    return found["__state"].to_pylist()


def test_small_blocks_are_handed_on_together_and_no_more_than_it_takes():
    pieces = (pa.table({"x": np.arange(2)}) for _ in range(7))
    assert [len(piece) for piece in rebatch.rebatch_bytes(pieces, 3 * 16)] == [6, 6, 2]


def failing_on(bad: set[int]) -> result.Work:
    """Doubles x, and fails for any batch that holds one of `bad`."""

    def work(live: pa.Table) -> result.Outcome:
        values = live["x"].to_numpy()
        if bad & set(values.tolist()):
            raise ValueError(f"no {sorted(bad & set(values.tolist()))[0]}")
        return result.Outcome({"y": values * 2})

    return work


@given(st.sets(st.integers(0, 39)), st.integers(1, 40))
def test_of_a_failing_batch_exactly_the_culprits_are_quarantined(bad: set[int], count: int):
    done = apply.apply(block(count), "infer", failing_on(bad))
    culprits = {i for i in range(count) if i in bad}
    assert {i for i, state in enumerate(states(done)) if state == blocks.QUARANTINED} == culprits
    expected = [None if i in culprits else 2 * i for i in range(count)]
    assert done["y"].to_pylist() == expected if "y" in done.column_names else set(expected) == {None}
    told = {done["__error_message"][i].as_py().partition(" (test_blocks.py:")[0] for i in culprits}
    assert told == {f"no {i}" for i in culprits}
    assert {done["__stage"][i].as_py() for i in culprits} <= {"infer"}
    assert done["__row"].to_pylist() == list(range(10, 10 + count))


def test_what_a_step_refuses_or_drops_is_marked_and_later_steps_see_only_the_rest():
    def first(live: pa.Table) -> result.Outcome:
        keep = np.array([number != 1 for number in live["x"].to_pylist()])
        return result.Outcome({"y": live["x"]}, keep=keep, failed={2: RowError("not this one")})

    done = apply.apply(block(4), "preprocess", first)
    assert states(done) == [blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED, blocks.LIVE]
    seen = []
    done = apply.apply(
        done, "infer", lambda live: seen.append(live["x"].to_pylist()) or result.Outcome({"z": live["x"]})
    )
    assert seen == [[0, 3]]
    assert done["z"].to_pylist() == [0, None, None, 3]
    assert done["__infer_seconds"].is_null().to_pylist() == [False, True, True, False]
    done = apply.apply(done, "infer", lambda live: result.Outcome(keep=np.array([False, True])))
    assert states(done) == [blocks.FILTERED, blocks.FILTERED, blocks.QUARANTINED, blocks.LIVE]


def test_the_work_never_sees_hidden_columns_nor_changes_who_a_row_is():
    seen: list[str] = []

    def work(live: pa.Table) -> result.Outcome:
        seen.extend(live.column_names)
        return result.Outcome({"row_id": ["mine"] * len(live), "uri": ["mine"] * len(live)})

    done = apply.apply(block(2), "infer", work)
    assert seen == ["row_id", "x"]
    assert done["row_id"].to_pylist() == ["r0", "r1"]
    assert "uri" not in done.column_names


def test_what_is_not_a_row_s_fault_propagates():
    def broken(live: pa.Table) -> result.Outcome:
        raise JobError("no licence")

    with pytest.raises(JobError):
        apply.apply(block(3), "infer", broken)


def test_a_block_without_live_rows_is_left_alone():
    done = apply.apply(block(2), "infer", failing_on({0, 1}))
    assert apply.apply(done, "infer", failing_on({0, 1})).equals(done.combine_chunks())
    assert states(blocks.settled_block({}, 3, [7], blocks.END)) == [blocks.END]


def test_seconds_are_shared_out_over_the_rows_that_were_worked_on():
    done = blocks.measured(block(4), np.array([0, 2]), "infer", 3.0, 8)
    done = blocks.measured(done, np.array([2]), "infer", 1.0, 2)
    assert done["__infer_seconds"].to_pylist() == [1.5, None, 2.5, None]
    assert done["__infer_bytes"].to_pylist() == [4.0, None, 6.0, None]


def test_messages_are_never_empty_nor_endless_nor_beyond_utf8():
    assert error_message(ValueError()) == "ValueError"
    assert len(error_message(ValueError("x" * 10_000))) == MESSAGE_LIMIT
    with pytest.raises(UnicodeDecodeError) as raised:
        b"caf\xe9 au lait".decode()
    told = error_message(raised.value.with_traceback(None))
    assert told == "expected text in utf-8, found b'\\xe9 au lait' at byte 3: invalid continuation byte"
    pa.array([error_message(ValueError("caf\udce9"))], pa.string())


ARRAYS = [
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    np.ones((2, 3), np.float16),
    np.array([["a", "bc"], ["d", "e"]]),
    np.array([[True, False], [False, False]]),
    np.zeros((2, 0, 3)),
    np.array([["2024-01-01"], ["NaT"]], "M8[s]"),
    np.arange(6, dtype=">i4").reshape(2, 3),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_stacked_arrays_cross_unchanged_whole_and_in_slices(array: np.ndarray):
    column = pa.chunked_array([tensors.to_arrow(array)])
    for found, expected in ((column, array), (column.slice(1), array[1:])):
        back = tensors.to_numpy(found)
        np.testing.assert_array_equal(back, expected)
        assert back.dtype == array.dtype.newbyteorder("=")


def test_arrays_of_unlike_shapes_and_missing_ones_cross_as_objects():
    values = [np.zeros((2, 3), np.uint8), None, np.ones((1, 5, 2))]
    back = tensors.to_numpy(pa.chunked_array([tensors.to_arrow(values)]))
    assert back[1] is None
    assert (back[0].shape, back[2].shape, back[2].dtype) == ((2, 3), (1, 5, 2), np.float64)
    assert tensors.to_arrow([None, None]).null_count == 2


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [
        ([1, None], [1, None]),
        ([np.float32(0.5), np.str_("x")][:1], [0.5]),
        ([{"a": [1]}, None], [{"a": [1]}, None]),
        (np.array(["a", None], object), ["a", None]),
        (torch.tensor([1, 2]), [1, 2]),
        ([torch.tensor(1), torch.tensor(2)], [1, 2]),
        ([np.datetime64("2024-01-01T00:00:00", "ns")], [datetime.datetime(2024, 1, 1)]),
        ([decimal.Decimal("1.5")], [decimal.Decimal("1.5")]),
        ([np.array(["a", "b"], object), np.array(["c"], object), None], [["a", "b"], ["c"], None]),
        (np.array([["a", "b"], ["c", "d"]], object), [["a", "b"], ["c", "d"]]),
        (pa.chunked_array([[1], [2]]), [1, 2]),
        (np.array([1, 2], ">i2"), [1, 2]),
    ],
)
def test_whatever_a_predictor_returns_becomes_plain_values(given_values: Any, expected: list):
    assert tensors.to_arrow(given_values).to_pylist() == expected


def test_a_list_of_tensors_is_a_list_of_arrays():
    back = tensors.to_numpy(pa.chunked_array([tensors.to_arrow([torch.ones(2), torch.zeros(2)])]))
    np.testing.assert_array_equal(back, [[1, 1], [0, 0]])


SOURCE_COLUMNS = {
    "numbers": pa.array([1, None, 3]),
    "text": pa.array(["a", None, ""]),
    "lists": pa.array([[1, 2], [3], None]),
    "even": pa.array([[1, 2], [3, 4], [5, 6]]),
    "words": pa.array([["a", "b"], [], ["c"]]),
    "record": pa.array([{"a": 1, "b": [None]}, None, {"a": 2, "b": []}]),
    "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "time": pa.array([datetime.datetime(2024, 1, 1), None, None], pa.timestamp("us", "UTC")),
    "money": pa.array([decimal.Decimal("1.50"), None, None], pa.decimal128(9, 2)),
    "nan": pa.array([float("nan"), None, 0.0]),
    "bytes": pa.array([b"\xff", None, b""]),
    "image": tensors.to_arrow([np.zeros((2, 2), np.uint8), np.zeros((1, 2), np.uint8), None]),
}


@pytest.mark.parametrize("name", SOURCE_COLUMNS)
def test_a_column_handed_back_as_it_came_keeps_its_type(name: str):
    table = pa.table({name: SOURCE_COLUMNS[name]})
    assert user_function.outcome_of(lambda batch: batch, table, "infer", "model").columns == {}


def test_a_column_changed_in_place_is_seen_to_be_changed():
    table = pa.table({"image": SOURCE_COLUMNS["image"], "text": SOURCE_COLUMNS["text"], "even": SOURCE_COLUMNS["even"]})

    def change(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        batch["image"][0][0, 0] = 9
        batch["text"][0] = "z"
        batch["even"][1][0] = 7
        return batch

    changed = user_function.outcome_of(change, table, "infer", "model").columns
    found = {name: tensors.to_numpy(values) for name, values in changed.items()}
    assert found["image"][0][0, 0] == 9
    assert found["text"][0] == "z"
    assert found["even"][1].tolist() == [7, 4]
    assert table["text"][0].as_py() == "a"
    assert tensors.to_numpy(table["image"])[0][0, 0] == 0


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2, 3], "expected a dict of arrays, found list"),
        ({"y": [1, 2]}, "2 values for a batch of 3 rows"),
        ({"y": 5}, "a single int"),
        ({"__state": [1, 2, 3]}, "not a usable column name"),
        ({5: [1, 2, 3]}, "not a usable column name"),
    ],
)
def test_a_broken_contract_is_told_in_the_user_s_words(returned: Any, message: str):
    with pytest.raises(ContractError, match=message):
        user_function.outcome_of(lambda batch: returned, pa.table({"x": [1, 2, 3]}), "infer", "model")


@pytest.mark.parametrize("values", [[[1, 2], [[3]]], [{"a": 1}, [1]], ["a", 1]])
def test_rows_whose_values_have_no_type_in_common_are_refused_by_column(values: list[Any]):
    block = source_block(0, 0, pa.table({"row_id": ["a", "b"]}))
    places = iter([values, values[:1], values[1:]])
    with pytest.raises(
        ContractError, match=r"column 'y': expected values of one type, found .* Return one type, or JSON"
    ):
        apply.apply(block, "infer", lambda live: result.Outcome({"y": next(places)}))


def test_a_row_whose_list_is_of_no_type_is_quarantined_with_its_column():
    block = source_block(0, 0, pa.table({"row_id": ["a"]}))
    done = apply.apply(block, "infer", lambda live: result.Outcome({"y": [[1, "a"]]}))
    assert done["__error_message"][0].as_py().startswith("column 'y': expected values of one type, found others")
