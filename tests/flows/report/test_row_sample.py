"""One pass over rows draws rows, counts values, compares predictions with labels, and ends at its bounds."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.flows.report import row_sample
from overnight.flows.report.row_sample import LENGTHS, Roles, RowSample, bin_edges, light_tables, roles_of


def tables(count: int = 1000, size: int = 100) -> list[pa.Table]:
    scores = np.random.default_rng(3).permutation(count) / count
    rows = pa.table(
        {
            "row_id": [f"r{number}" for number in range(count)],
            "score": scores,
            "label": ["a" if number % 2 else "b" for number in range(count)],
            "predicted_label": ["a" if number % 2 or number % 10 == 0 else "b" for number in range(count)],
            "text": ["x" * (number % 7) for number in range(count)],
        }
    )
    return [rows[start : start + size] for start in range(0, count, size)]


ROLES = Roles("score", "predicted_label", "label")


TEXTS = {
    "shop": {"classes": {"1": 3, "2": 4}},
    "mood": {"classes": {"good": 3, "bad": 4}},
    "tokens": {"classes": {"43": 3, "44": 4}, "mean": 43.6},
}


def sample_of(parts: list[pa.Table], roles: Roles = ROLES, **settings: Any) -> RowSample:
    sample = RowSample(roles, **settings)
    sample.read(parts)
    return sample


def random_rows(count: int, size: int, seed: int, drawn: int) -> list[str]:
    return sample_of(tables(count, size), count=drawn, seed=seed).groups()["Random rows"]["row_id"].to_pylist()


def test_the_least_and_the_most_sure_rows_come_from_all_tables() -> None:
    groups = sample_of(tables(), classes=("a", "b"), count=6, seed=1).groups()
    assert groups["Least sure"]["score"].to_pylist() == [0.0, 0.001, 0.002]
    assert groups["Most sure"]["score"].to_pylist() == [0.999, 0.998, 0.997]
    assert groups["One per predicted_label"]["predicted_label"].to_pylist() == ["a", "b"]


def test_the_same_seed_draws_the_same_rows_and_another_seed_others() -> None:
    drawn = [random_rows(1000, 100, seed, drawn=6) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 6


def test_every_row_is_as_likely_as_the_others() -> None:
    hits = np.zeros(100)
    for seed in range(400):
        for row in random_rows(100, 10, seed, drawn=10):
            hits[int(row[1:])] += 1
    assert hits.min() > 15
    assert hits.max() < 70  # 40 on average, with a standard deviation of 6


def test_histograms_count_numbers_and_lengths_of_texts() -> None:
    edges = {"score": np.array([0, 0.5, 1.0]), "text": LENGTHS}
    sample = sample_of(tables(), edges=edges)
    assert sample.histograms["score"].tolist() == [500, 500]
    assert sample.histograms["text"][:3].tolist() == [143, 143, 429]  # 0, 1 and 2 to 4 characters
    assert sample.groups() == {}


def test_agreement_counts_equal_rows_and_names_the_confusions() -> None:
    sample = sample_of(tables())
    assert (sample.pairs.total(), sample.agreement, sample.confusions) == (1000, 0.9, [(("b", "a"), 100)])


@pytest.mark.parametrize(
    ("name", "labels", "predictions", "share"),
    [
        ("predicted_label", "aabbc", "aaaaa", 0.4),
        ("predicted_label", "aabbc", "xyxyx", 0.4),
        ("predicted_label", "aaaaa", "aabbb", None),  # one label only
        ("digit", "aabbc", "abcab", 0.4),
        ("split", "aabbc", "xyxyx", None),  # no prediction
    ],
)
def test_the_share_of_the_most_frequent_label_needs_labels_and_predictions(
    name: str, labels: str, predictions: str, share: float | None
) -> None:
    rows = pa.table({"label": list(labels), name: list(predictions)})
    assert sample_of([rows], Roles("", name, "label")).most_frequent == share


def test_a_pass_ends_at_its_bound_and_is_then_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sample, "MOST_ROWS", 250)
    sample = sample_of(tables(), count=4)
    assert (sample.rows, sample.is_whole) == (300, False)


def test_rows_without_a_finite_score_are_neither_least_nor_most_sure() -> None:
    rows = pa.table({"row_id": ["a", "b", "c"], "scores": [[0.9, 0.1], [], None]})
    groups = sample_of([rows], Roles("scores"), count=6).groups()
    assert groups["Least sure"]["row_id"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    ("columns", "roles"),
    [
        ({"label": {}, "predicted_label": {}, "confidence": {}}, Roles("confidence", "predicted_label", "label")),
        ({"resnet_predicted_label": {}, "resnet_confidence": {}}, Roles("resnet_confidence", "resnet_predicted_label")),
        ({"label": {}, "embedding": {}}, Roles("", "label")),
        ({"digit": {"classes": {"1": 3, "2": 4}}, "label": {}}, Roles("", "digit", "label")),
        (TEXTS, Roles("", "mood")),
        ({"amount": {"mean": 3.0}}, Roles()),
        ({"boxes": {}, "labels": {}, "scores": {}}, Roles("scores")),
        ({"torch_scores": {}, "species_score": {}, "species_confidence": {}}, Roles("species_confidence")),
        ({"torch_scores": {}}, Roles()),
    ],
)
def test_columns_get_their_roles_by_name(columns: dict[str, dict[str, object]], roles: Roles) -> None:
    assert roles_of(columns, "label") == roles


def test_bins_cover_the_earlier_column_too() -> None:
    edges = bin_edges({"type": "double", "min": 0, "max": 1, "mean": 0.5}, {"min": -1, "max": 0.5})
    assert edges is not None
    assert (edges[0], edges[-1]) == (-1, 1)
    assert bin_edges({"type": "double", "min": 1, "max": 1, "mean": 1}, {}) is None


def test_numbers_at_the_ends_of_the_range_have_no_bins() -> None:
    assert bin_edges({"type": "double", "min": -1.7e308, "max": 1.7e308, "mean": 0}, {}) is None


def test_nested_scores_and_labels_draw_rows_at_random_alone() -> None:
    rows = pa.table({"row_id": ["a"], "scores": [[["high"]]], "predicted_label": [{"a": 1}], "label": ["a"]})
    sample = sample_of([rows], Roles("scores", "predicted_label", "label"), classes=("a",), count=6)
    assert list(sample.groups()) == ["Random rows"]
    assert sample.agreement is None


def test_embeddings_are_not_read() -> None:
    rows = pa.table(
        {"row_id": ["a"], "embedding": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "scores": [[0.5]]}
    )
    asked = []

    def read(names: list[str] | None):  # type: ignore[no-untyped-def]
        asked.append(names)
        yield rows.select(names or rows.column_names)

    assert [table.column_names for table in light_tables(read)] == [["row_id", "scores"]]
    assert asked == [None, ["row_id", "scores"]]
