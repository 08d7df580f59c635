"""One bad row costs one row: work that fails for a batch quarantines exactly the rows that it fails for."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.rows import apply, blocks, result
from tests.tasks.blocks import numbered_block as block


def states(found: pa.Table) -> list[int]:
    return found["__state"].to_pylist()


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
    told = {done["__error_message"][i].as_py().partition(" (test_apply.py:")[0] for i in culprits}
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


def test_code_that_exits_fails_its_row_and_not_this_process() -> None:
    def leaves(live: pa.Table) -> result.Outcome:
        if 1 in live["x"].to_pylist():
            raise SystemExit(7)
        return result.Outcome({"y": live["x"]})

    done = apply.apply(block(3), "infer", leaves)
    assert states(done) == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert (done["__error_type"][1].as_py(), "7" in done["__error_message"][1].as_py()) == ("SystemExit", True)


def test_what_halves_of_a_batch_return_is_joined_also_if_only_one_filters_adds_or_orders() -> None:
    """Row 3 fails, so that rows run as 0-1, 2 and 3; rows 2 and 3 alone have no `y`, and 0-1 no filter."""

    def work(live: pa.Table) -> result.Outcome:
        values = live["x"].to_pylist()
        if 3 in values:
            raise ValueError("no 3")
        if 2 in values:
            return result.Outcome({"z": values}, keep=np.array([False]), order=["z", "x"])
        return result.Outcome({"y": values})

    done = apply.apply(block(4, extra=["e"] * 4), "preprocess", work)
    assert states(done) == [blocks.LIVE, blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED]
    visible = blocks.visible(done)
    assert visible.column_names == ["row_id", "z", "x"]
    assert visible["z"].to_pylist() == [None, None, 2, None]
    other = apply.apply(block(4), "preprocess", lambda live: result.Outcome({"y": live["x"]}, failed={1: ValueError()}))
    assert (states(other)[1], other["y"].to_pylist()) == (blocks.QUARANTINED, [0, 1, 2, 3])


def test_the_time_of_the_clock_and_the_bytes_of_the_result_are_shared_by_the_rows_that_were_worked_on() -> None:
    times = iter([10.0, 14.0])
    first = apply.apply(block(3), "preprocess", lambda live: result.Outcome(keep=np.array([True, False, True])))
    done = apply.apply(
        first, "infer", lambda live: result.Outcome({"y": np.zeros(2, np.int64)}), clock=lambda: next(times)
    )
    assert done["__infer_seconds"].to_pylist() == [2.0, None, 2.0]
    assert done["__infer_bytes"].to_pylist() == [8.0, None, 8.0]


def test_the_errors_of_failed_rows_are_collected_for_a_trial() -> None:
    errors: list[Exception] = []
    apply.apply(block(4), "infer", failing_on({0, 2}), errors=errors)
    assert [str(error) for error in errors] == ["no 0", "no 2"]


@pytest.mark.parametrize("values", [[[1, 2], [[3]]], [{"a": 1}, [1]], ["a", 1]])
def test_rows_whose_values_have_no_type_in_common_are_refused_by_column(values: list[Any]):
    places = iter([values, values[:1], values[1:]])
    with pytest.raises(
        ContractError, match=r"column 'y': expected values of one type, found .* Return one type, or JSON"
    ):
        apply.apply(block(2), "infer", lambda live: result.Outcome({"y": next(places)}))


def test_a_row_whose_list_is_of_no_type_is_quarantined_with_its_column():
    done = apply.apply(block(1), "infer", lambda live: result.Outcome({"y": [[1, "a"]]}))
    assert done["__error_message"][0].as_py().startswith("column 'y': expected values of one type, found others")
