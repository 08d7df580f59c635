"""Regressions, and what changed with them."""

import copy
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.history.history import read_history
from overnight.flows.history.lines import Line
from overnight.tasks.storage.location import Location
from tests.flows.history.states import publish, receipt

COLUMN = {"rows": 1000, "nulls": 0, "type": "string", "classes": {"cat": 500, "dog": 500}}


def lines_of(folder: Path, *records: tuple[dict[str, Any], float | None]) -> list[Line]:
    """Return the lines of receipts, each with the agreement of its report, on days one after another."""
    for number, (record, agreement) in enumerate(records, 1):
        day = f"2026-01-{number:02}"
        publish(folder, {**record, "partition": day, "generation": f"g{number:02}"}, agreement)
    return list(read_history(Location(str(folder))).lines)


def changed(record: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a receipt whose ingredients have another value at `key`, such as `models.0.linear.py`."""
    result = copy.deepcopy(record)
    place: Any = result["ingredients"]
    *names, last = key.split("/")
    for name in names:
        place = place[int(name) if name.isdecimal() else name]
    place[last] = value
    return {**result, "fingerprint": "f2"}


@pytest.mark.parametrize(
    ("more", "agreement", "kind", "text"),
    [
        ({"rate": 60.0}, 0.9, "slower", "60 rows/s, before 100 rows/s"),
        ({"rows_quarantined": 20}, 0.9, "more quarantined", "2.0%, before 0.0%"),
        ({}, 0.8, "lower agreement", "80.0%, before 90.0%"),
        ({"settings": {"price_per_cpu_hour": 7200.0}}, 0.9, "costlier", "16 for 1,000 rows, before 8 for 1,000 rows"),
    ],
)
def test_a_figure_that_became_worse_is_marked_where_it_came(
    tmp_path: Path, more: dict[str, Any], agreement: float, kind: str, text: str
) -> None:
    settings = {"settings": {"price_per_cpu_hour": 3600.0}}
    good, bad = receipt("2026-01-01", **settings), receipt("2026-01-01", **(settings | more))
    lines = lines_of(tmp_path, (good, 0.9), (good, 0.9), (bad, agreement), (bad, agreement))
    assert [[remark.kind for remark in line.regressions] for line in lines] == [[], [], [kind], []]
    assert lines[2].regressions[0].text == text


@pytest.mark.parametrize(
    ("more", "agreement"),
    [({"rate": 80.0}, 0.9), ({"rows_quarantined": 4}, 0.9), ({}, 0.89), ({"rate": 5000.0}, 0.95)],
)
def test_small_changes_and_better_figures_are_no_regressions(
    tmp_path: Path, more: dict[str, Any], agreement: float
) -> None:
    lines = lines_of(tmp_path, (receipt("2026-01-01"), 0.9), (receipt("2026-01-01", **more), agreement))
    assert lines[1].regressions == []


def test_one_good_day_makes_the_next_usual_day_no_regression(tmp_path: Path) -> None:
    rates = (100.0, 100.0, 300.0, 100.0)
    lines = lines_of(tmp_path, *((receipt("2026-01-01", rate), None) for rate in rates))
    assert not any(line.regressions for line in lines)


def test_runs_of_less_than_a_second_are_not_compared_by_their_rate(tmp_path: Path) -> None:
    rates = (5000.0, 2000.0)
    assert not lines_of(tmp_path, *((receipt("2026-01-01", rate), None) for rate in rates))[1].regressions


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


@pytest.mark.parametrize(
    ("key", "value", "kind", "text"),
    [
        ("models/0/kwargs.weights", "w2", "model", "kwargs.weights of inference.python"),
        ("models/0/linear.py", "c2", "code", "linear.py of inference.python"),
        ("settings/inference/0/kwargs", {"crop": 2}, "settings", "inference.python.kwargs.crop: 4 -> 2"),
    ],
)
def test_what_changed_stands_beside_the_regression(tmp_path: Path, key: str, value: Any, kind: str, text: str) -> None:
    good = receipt("2026-01-01")
    bad = changed(receipt("2026-01-01", 30.0), key, value)
    line = lines_of(tmp_path, (good, None), (bad, None))[1]
    assert [remark.as_json() for remark in line.changes] == [{"kind": kind, "text": text}]


def test_versions_commits_settings_that_change_no_result_and_inputs_count_as_changes(tmp_path: Path) -> None:
    good = receipt("2026-01-01", commits={"org/model": "a" * 40}, settings={"name": "daily", "workers": 2})
    more = {"versions": {"torch": "2.1", "commit": "c" * 40}, "commits": {"org/model": "b" * 40}}
    more |= {"settings": {"name": "daily", "workers": 4}, "rows_in": 5000, "bytes_in": 10**8}
    line = lines_of(tmp_path, (good, None), ({**good, **more}, None))[1]
    assert [str(remark) for remark in line.changes] == [
        "settings: workers: 2 -> 4",
        f"model: org/model {'a' * 12} -> {'b' * 12}",
        "versions: torch 2.0 -> 2.1",
        f"code: commit none -> {'c' * 12}",
        "inputs: rows 1,000 -> 5,000",
        "inputs: bytes a row 1,000 B -> 19.5 KiB",
    ]


def test_a_regression_without_a_change_says_so(tmp_path: Path) -> None:
    line = lines_of(tmp_path, (receipt("2026-01-01"), None), (receipt("2026-01-01", 30.0), None))[1]
    assert [remark.kind for remark in line.changes] == ["nothing"]


def test_receipts_of_an_earlier_version_lack_fields_and_have_lines(tmp_path: Path) -> None:
    old = {"job": "daily", "status": "published", "files": [], "attempt": "a"}
    old |= dict.fromkeys(("rows_in", "rows_out", "rows_filtered", "rows_quarantined"), 3)
    lines = lines_of(tmp_path, (old, None), (old, None), (receipt("2026-01-01"), None))
    assert [line.entry.status for line in lines] == ["published"] * 3
