"""The statistics of the columns of two results on the terminal: drift, shares, means and nulls."""

import pyarrow as pa
import pytest

from overnight.api.console import VisibleConsole
from overnight.cli.columns_view import show_statistics
from overnight.flows.report.columns import compare_columns
from overnight.tasks.write.checks.column_statistics import describe, summary
from overnight.tasks.write.kinds import Checks


def test_columns_with_drift_come_first_and_each_figure_has_both_values(capsys: pytest.CaptureFixture[str]) -> None:
    before = pa.table({"score": [1.0, 2.0, None, 3.0], "label": ["cat"] * 4})
    now = pa.table({"score": [1.0, 2.0, 3.0, 2.4], "label": ["dog", "dog", "dog", "cat"]})
    receipts = [{"columns": summary(describe(table), ["label"])} for table in (now, before)]
    columns = compare_columns(receipts[0], receipts[1:], Checks(drift={"label": 0.2}))
    show_statistics(VisibleConsole(highlight=False), columns)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == [
        "label drift (string)",
        "distance of the shares: 0.75 (checks.drift 0.2)",
        "dog: 0.0% -> 75.0%",
        "cat: 100.0% -> 25.0%",
    ]
    assert "without a value: 25.0% -> 0.0%" in lines
    assert "mean: 2 -> 2.1" in lines
