"""The agreement of two results: its interval, its test, and the rows that it takes."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.rows.agreement import (
    agreement,
    hashes_of,
    mcnemar,
    predictions,
    rows_needed,
    value_hashes,
    wilson,
)


@pytest.mark.parametrize(
    ("count", "rows", "low", "high"),
    # R. G. Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_wilsons(count: int, rows: int, low: float, high: float) -> None:
    assert wilson(count, rows) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert wilson(0, 0) == (0.0, 1.0)


def test_mcnemars_test_is_the_exact_binomial_one() -> None:
    assert mcnemar(0, 0) == mcnemar(5, 5) == 1.0
    assert mcnemar(1, 9) == pytest.approx(2 * (1 + 10) / 2**10)
    assert mcnemar(9, 1) == mcnemar(1, 9)


def test_mcnemars_test_of_a_million_pairs_takes_no_minutes() -> None:
    assert mcnemar(499_000, 501_000) == pytest.approx(0.0456, abs=1e-4)  # the normal approximation


@pytest.mark.parametrize(("difference", "discordant"), [(0.02, 0.1), (0.05, 0.2)])
def test_so_many_rows_show_the_difference_in_four_of_five_draws(difference: float, discordant: float) -> None:
    rows = rows_needed(difference, discordant)
    shares = [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant]
    only_a, only_b, _ = np.random.default_rng(0).multinomial(rows, shares, size=20_000).T
    is_seen = np.abs(only_a - only_b) > 1.96 * np.sqrt(only_a + only_b)
    assert is_seen.mean() == pytest.approx(0.8, abs=0.015)


def test_more_rows_that_differ_take_more_rows_and_fewer_than_the_difference_are_not_assumed() -> None:
    assert rows_needed(0.02, 0) == rows_needed(0.02, 0.02) < rows_needed(0.02, 0.1) < rows_needed(0.02, 1)


def test_rows_are_found_by_their_ids_in_any_order_and_type() -> None:
    a = pa.table({"row_id": ["x", "y", "z"], "n": [1, 2, None], "t": ["a", "b", "c"]})
    b = pa.table({"row_id": pa.array(["z", "y", "w"], pa.large_string()), "n": ["", "2", "3"], "t": ["c", "b", "a"]})
    same = agreement(hashes_of([a], ["t"]), hashes_of([b[:1], b[1:]], ["t"]))
    assert (same.agreeing, same.rows, same.only_a, same.only_b, same.share) == (2, 2, 1, 1, 1.0)
    other = agreement(hashes_of([a], ["n"], ["n"]), hashes_of([b], ["n"], ["n"]))
    assert (other.agreeing, other.share) == (1, 0.5)  # null is no empty text
    assert agreement(hashes_of([], ["n"]), hashes_of([b], ["n"])).share is None


@pytest.mark.parametrize("size", [-1, 1])
def test_null_an_empty_list_and_a_list_of_null_are_other_values(size: int) -> None:
    lists = [None, [None], [1.0], [1.0]] + [[], [1.0, None]] * (size < 0)
    hashes = value_hashes(pa.table({"x": pa.array(lists, pa.list_(pa.float16(), size))}), ["x"])
    assert hashes[2] == hashes[3]
    assert len(np.unique(hashes)) == len(lists) - 1


def test_types_that_duckdb_lacks_are_compared_by_value() -> None:
    numbers = pa.array([1, 1, 2], pa.float32())
    table = pa.table({"x": numbers.cast(pa.float16()), "y": numbers.cast(pa.decimal256(50, 2))})
    hashes = value_hashes(table, ["x", "y"])
    assert (hashes[0] == hashes[1]).all()
    assert (hashes[0] != hashes[2]).all()


def test_predicted_labels_of_one_model_and_of_several_are_predictions() -> None:
    assert predictions(["label", "predicted_label", "a_predicted_label", "mypredicted_label"]) == [
        "predicted_label",
        "a_predicted_label",
    ]
