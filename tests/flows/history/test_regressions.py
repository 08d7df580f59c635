"""Which figures became worse, and which did not."""

from pathlib import Path
from typing import Any

import pytest

from tests.flows.history.states import lines_of, receipt

COLUMN = {"rows": 1000, "nulls": 0, "type": "string", "classes": {"cat": 500, "dog": 500}}


@pytest.mark.parametrize(
    ("more", "agreement", "kind", "text"),
    [
        ({"rate": 6.0}, 0.9, "slower", "6 rows/s, before 12 rows/s"),
        ({"rows_quarantined": 20}, 0.9, "more quarantined", "2.0%, before 0.0%"),
        ({}, 0.8, "lower agreement", "80.0%, before 90.0%"),
        ({"settings": {"price_per_cpu_hour": 7200.0}}, 0.9, "costlier", "16 for 1,000 rows, before 8 for 1,000 rows"),
    ],
)
def test_a_figure_that_became_worse_is_marked_where_it_came(
    tmp_path: Path, more: dict[str, Any], agreement: float, kind: str, text: str
) -> None:
    settings: dict[str, Any] = {"rate": 12.0, "settings": {"price_per_cpu_hour": 3600.0}}
    good, bad = receipt("2026-01-01", **settings), receipt("2026-01-01", **(settings | more))
    lines = lines_of(tmp_path, (good, 0.9), (good, 0.9), (bad, agreement), (bad, agreement))
    assert [[remark.kind for remark in line.regressions] for line in lines] == [[], [], [kind], []]
    assert lines[2].regressions[0].text == text


@pytest.mark.parametrize(
    ("more", "agreement"),
    [({"rate": 8.0}, 0.9), ({"rows_quarantined": 4}, 0.9), ({}, 0.89), ({"rate": 5000.0}, 0.95)],
)
def test_small_changes_and_better_figures_are_no_regressions(
    tmp_path: Path, more: dict[str, Any], agreement: float
) -> None:
    lines = lines_of(tmp_path, (receipt("2026-01-01", 10.0), 0.9), (receipt("2026-01-01", **more), agreement))
    assert lines[1].regressions == []


def test_one_good_day_makes_the_next_usual_day_no_regression(tmp_path: Path) -> None:
    rates = (10.0, 10.0, 30.0, 10.0)
    lines = lines_of(tmp_path, *((receipt("2026-01-01", rate), None) for rate in rates))
    assert not any(line.regressions for line in lines)


@pytest.mark.parametrize("rates", [(100.0, 18.0), (110.0, 10.0)])
def test_streams_of_a_few_seconds_are_not_compared_by_their_rate(tmp_path: Path, rates: tuple[float, float]) -> None:
    assert not lines_of(tmp_path, *((receipt("2026-01-01", rate), None) for rate in rates))[1].regressions


def test_the_agreement_of_a_few_rows_varies_by_chance(tmp_path: Path) -> None:
    few = receipt("2026-01-01", rows_in=50, rows_out=50)
    assert not lines_of(tmp_path, (few, 0.9), (few, 0.8))[1].regressions


def test_a_few_quarantined_rows_of_a_few_are_chance(tmp_path: Path) -> None:
    few = receipt("2026-01-01", rows_in=10)
    lines = lines_of(tmp_path, (few, None), ({**few, "rows_quarantined": 1}, None))
    assert lines[1].regressions == []


def test_drift_names_the_column_and_the_bound(tmp_path: Path) -> None:
    before = receipt("2026-01-01", columns={"label": COLUMN})
    now = receipt("2026-01-01", columns={"label": {**COLUMN, "classes": {"cat": 900, "dog": 100}}})
    line = lines_of(tmp_path, (before, None), (now, None))[1]
    assert (line.drift, [remark.kind for remark in line.regressions]) == (["label"], ["drift"])
    assert "label: shares by 0.4, the bound is" in line.regressions[0].text
