"""What `overnight chaos` prints."""

import pytest

from overnight.cli.chaos import show_report
from overnight.flows.chaos.rehearsal import KILL_RUN, Report


def test_the_tables_name_each_kill_and_count_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    strikes = [{"what": KILL_RUN, "share": 0.5, "seconds": 3.0}]
    report = Report("doubles", "all", 7, 400, torn=2, recomputed=3, runs=2, strikes=strikes, kept="/tmp/x")
    show_report(report, "job.yaml")
    shown = capsys.readouterr().out
    assert "the run killed" in shown
    assert "50%" in shown
    assert "overnight chaos job.yaml --kills 1 --rows 400 --seed 7" in shown
    assert not report.is_exact
