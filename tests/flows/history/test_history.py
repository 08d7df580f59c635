"""Histories of real runs, of a regression without a cause, and of receipts of earlier versions."""

from pathlib import Path

import pytest

from overnight.flows.history.history import read_history
from overnight.tasks.storage.location import Location
from tests import jobs
from tests.flows.conftest import RunJob
from tests.flows.history.states import lines_of, receipt


@pytest.mark.slow
def test_a_setting_that_changed_between_two_runs_stands_beside_the_drift_that_it_caused(
    run_job: RunJob, tmp_path: Path
) -> None:
    days = ["2026-01-01", "2026-01-02"]
    jobs.write_days(tmp_path, days, rows=200)
    for day, expression in zip(days, ("id % 10", "id % 10 + 50"), strict=True):
        step = {"kind": "derive_columns", "columns": {"score": expression}}
        run_job(jobs.job(tmp_path, preprocess=[step]), day)
    history = read_history(Location(f"{tmp_path}/out/_overnight"))
    first, second = history.lines
    assert (history.job, first.regressions, second.drift) == ("small", [], ["score"])
    [change] = [remark for remark in second.changes if remark.kind == "settings"]
    assert change.text == "preprocess.derive_columns.columns.score: id % 10 -> id % 10 + 50"
    assert (second.attempts, second.report, second.facts["verdict"]) == (1, "report.html", "look")


def test_a_regression_without_a_change_says_so(tmp_path: Path) -> None:
    line = lines_of(tmp_path, (receipt("2026-01-01"), None), (receipt("2026-01-01", 10.0), None))[1]
    assert [remark.kind for remark in line.changes] == ["nothing"]


def test_receipts_of_an_earlier_version_lack_fields_and_have_lines(tmp_path: Path) -> None:
    old = {"job": "daily", "status": "published", "files": [], "attempt": "a"}
    old |= dict.fromkeys(("rows_in", "rows_out", "rows_filtered", "rows_quarantined"), 3)
    lines = lines_of(tmp_path, (old, None), (old, None), (receipt("2026-01-01"), None))
    assert [line.entry.status for line in lines] == ["published"] * 3
