"""A column of both sides: labels flip, numbers and vectors have distances."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.flows.compare.columns import Compared, compare_column, cosine_distances


def column(a: pa.Array | list, b: pa.Array | list) -> Compared:
    ids = [str(number) for number in range(len(a))]
    return compare_column("x", pa.table({"row_id": ids, "x": a}), pa.table({"row_id": ids, "x": b}))


def test_labels_flip_with_counts_the_most_frequent_first() -> None:
    found = column(["cat", "cat", "dog", None, "cat"], ["dog", "dog", "dog", "cat", "fox"])
    assert (found.kind, found.agreement.agreeing) == ("label", 1)
    assert [(flip.a, flip.b, flip.numbers) for flip in found.flips] == [
        ("cat", "dog", [0, 1]),
        ("null", "cat", [3]),
        ("cat", "fox", [4]),
    ]


def test_more_kinds_of_flips_than_are_shown_are_counted() -> None:
    found = column([str(number) for number in range(20)], ["x"] * 20)
    assert (len(found.flips), found.more_flips) == (12, 8)


def test_numbers_have_absolute_distances_and_a_null_has_none() -> None:
    found = column([1.0, 2.0, None, 4.0], [1.0, 1.5, 3.0, 6.0])
    assert found.distances
    assert (found.kind, found.distances.rows, found.distances.mean) == ("number", 3, pytest.approx(2.5 / 3))
    assert found.distances.quantiles[0.5] == 0.5
    assert found.distances.quantiles[1.0] == 2.0


@pytest.mark.filterwarnings("error")
def test_rows_that_differ_without_a_distance_are_counted() -> None:
    infinite = float("inf")
    assert column([1.0, 2.0, infinite], [1.0, float("nan"), infinite]).more_rows == 1
    assert column([1.0, 2.0], [None, None]).more_rows == 2


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2)])
def test_vectors_have_cosine_distances(kind: pa.DataType) -> None:
    a = pa.array([[1, 0], [1, 0], [1, 0], [0, 0], None], kind)
    b = pa.array([[2, 0], [0, 3], [-1, 0], [1, 1], [1, 1]], kind)
    found = column(a, b)
    assert found.distances
    assert found.kind == "vector"
    assert found.distances.rows == 3
    np.testing.assert_allclose(found.distances.of_rows[:3], [0, 1, 2])


def test_vectors_of_other_lengths_have_no_distance() -> None:
    kind = pa.list_(pa.float32())
    a, b = (pa.chunked_array([pa.array(rows, kind)]) for rows in ([[1, 0]], [[1, 0, 0]]))
    assert np.isnan(cosine_distances(a, b)).all()
    assert column(a, b).distances is None


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        ([1, 2, 3], [1, 2, 4], "label"),
        ([*range(99)], [*range(1, 100)], "number"),
        ([True, False], [True, True], "label"),
        ([{"a": 1}], [{"a": 2}], "value"),
        ([1.5, 2.5], ["1.5", "x"], "value"),
    ],
)
def test_the_type_and_the_number_of_values_choose_the_kind(a: list, b: list, kind: str) -> None:
    found = column(a, b)
    assert (found.kind, found.agreement.agreeing < len(a)) == (kind, True)
