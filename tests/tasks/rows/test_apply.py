"""One bad row costs one row: work that fails for a batch quarantines exactly the rows that it fails for."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.tasks.errors import ContractError, JobError, RowError
from overnight.tasks.rows import apply, blocks, result
from overnight.tasks.rows.blocks import FILTERED, LIVE, QUARANTINED
from tests.tasks.blocks import numbered_block as block


def states(found: pa.Table) -> list[int]:
    return found["__state"].to_pylist()


def failing_on(bad: set[int], error: type[BaseException] = ValueError) -> result.Work:
    """Doubles x, and fails for any batch that holds one of `bad`."""

    def work(live: pa.Table) -> result.Outcome:
        values = live["x"].to_numpy()
        if culprits := bad & set(values.tolist()):
            raise error(f"no {min(culprits)}")
        return result.Outcome({"y": values * 2})

    return work


@settings(max_examples=50)
@given(st.sets(st.integers(0, 39)), st.integers(1, 40))
def test_of_a_failing_batch_exactly_the_culprits_are_quarantined(bad: set[int], count: int):
    errors: list[Exception] = []
    done = apply.apply(block(count), "infer", failing_on(bad), errors=errors)
    culprits = [row for row in range(count) if row in bad]
    assert states(done) == [QUARANTINED if row in bad else LIVE for row in range(count)]
    expected = [None if row in bad else 2 * row for row in range(count)]
    assert done["y"].to_pylist() == expected if "y" in done.column_names else set(expected) == {None}
    reasons = done["__error_message"].take(np.array(culprits, int)).to_pylist()
    assert [reason.partition(" (test_apply.py:")[0] for reason in reasons] == [f"no {row}" for row in culprits]
    assert [str(error) for error in errors] == [f"no {row}" for row in culprits]
    assert done["__stage"].take(np.array(culprits, int)).to_pylist() == ["infer"] * len(culprits)
    assert done["__row"].to_pylist() == list(range(10, 10 + count))


def test_a_column_that_only_some_calls_replace_keeps_its_values_for_the_others():
    def work(live: pa.Table) -> result.Outcome:
        if 3 in live["x"].to_pylist():
            raise ValueError("no 3")
        changes = 0 in live["x"].to_pylist()
        return result.Outcome({"text": ["new"] * len(live)} if changes else {})

    done = apply.apply(block(5, text=pa.array(list("abcde"))), "preprocess", work)
    assert states(done) == [LIVE, LIVE, LIVE, QUARANTINED, LIVE]
    assert blocks.live_rows(done)[0]["text"].to_pylist() == ["new", "new", "c", "e"]


def test_what_a_step_refuses_or_drops_is_marked_and_later_steps_see_only_the_rest():
    def first(live: pa.Table) -> result.Outcome:
        keep = np.array([number != 1 for number in live["x"].to_pylist()])
        return result.Outcome({"y": live["x"]}, keep=keep, failed={2: RowError("not this one")})

    done = apply.apply(block(4), "preprocess", first)
    assert states(done) == [LIVE, FILTERED, QUARANTINED, LIVE]
    seen: list[Any] = []
    done = apply.apply(
        done, "infer", lambda live: seen.append(live["x"].to_pylist()) or result.Outcome({"z": live["x"]})
    )
    assert seen == [[0, 3]]
    assert done["z"].to_pylist() == [0, None, None, 3]
    done = apply.apply(done, "infer", lambda live: result.Outcome(keep=np.array([False, True])))
    assert states(done) == [FILTERED, FILTERED, QUARANTINED, LIVE]


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
    with pytest.raises(JobError):
        apply.apply(block(3), "infer", failing_on({1}, JobError))


def test_code_that_exits_fails_its_row_and_not_this_process() -> None:
    done = apply.apply(block(3), "infer", failing_on({1}, SystemExit))
    assert states(done) == [LIVE, QUARANTINED, LIVE]
    assert done["__error_type"][1].as_py() == "SystemExit"
    assert "sys.exit(no 1)" in done["__error_message"][1].as_py()


def test_a_block_without_live_rows_is_left_alone():
    done = apply.apply(block(2), "infer", failing_on({0, 1}))
    assert apply.apply(done, "infer", failing_on({0, 1})).equals(done.combine_chunks())


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
    assert states(done) == [LIVE, LIVE, FILTERED, QUARANTINED]
    visible = blocks.visible(done)
    assert visible.column_names == ["row_id", "z", "x"]
    assert visible["z"].to_pylist() == [None, None, 2, None]


def test_the_time_of_the_clock_and_the_bytes_of_the_result_are_shared_by_the_rows_that_were_worked_on() -> None:
    times = iter([10.0, 14.0])
    first = apply.apply(block(3), "preprocess", lambda live: result.Outcome(keep=np.array([True, False, True])))
    done = apply.apply(
        first, "infer", lambda live: result.Outcome({"y": np.zeros(2, np.int64)}), clock=lambda: next(times)
    )
    assert done["__infer_seconds"].to_pylist() == [2.0, None, 2.0]
    assert done["__infer_bytes"].to_pylist() == [8.0, None, 8.0]


@pytest.mark.parametrize("values", [[[1, 2], [[3]]], [{"a": 1}, [1]], ["a", 1]])
def test_rows_whose_values_have_no_type_in_common_are_refused_by_column(values: list[Any]):
    places = iter([values, values[:1], values[1:]])
    with pytest.raises(ContractError, match="column 'y': expected values of one type"):
        apply.apply(block(2), "infer", lambda live: result.Outcome({"y": next(places)}))


def test_a_row_whose_list_is_of_no_type_is_quarantined_with_its_column():
    done = apply.apply(block(1), "infer", lambda live: result.Outcome({"y": [[1, "a"]]}))
    assert done["__error_message"][0].as_py().startswith("column 'y': expected values of one type, found others")
