"""The log of a run has its first quarantined rows once each, and then their number."""

import logging
import threading
from pathlib import Path

import pytest

from overnight.flows.runs import quarantine_log
from overnight.tasks.workers.supervisor import QuarantineAllowed, Supervisor
from tests.tasks.runs import make_run


@pytest.mark.parametrize(("rows", "logged"), [(0, 0), (3, 3), (50, 50), (70, 51)])
def test_the_first_rows_are_logged_once_and_then_their_number(
    rows: int, logged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reports = Supervisor()
    reports.on(QuarantineAllowed(100, already=7, of="of all rows"))
    stop = threading.Event()
    looks = iter([20, 60, 70])

    def report_more(*since: int) -> tuple[int, list[dict[str, str]]]:
        """Report a few rows before each look, and end the run before the last."""
        upto = min(rows, next(looks))
        for row in range(reports.quarantined_since(0, 0)[0], upto):
            details = {"row_id": f"{row}.png", "stage": "infer", "error_type": "ValueError", "error_message": "no"}
            assert reports.quarantined([row], [0], [details]) is None
        if upto in (rows, 60):
            stop.set()
        return reports.quarantined_since(*since)

    monkeypatch.setattr(quarantine_log, "ask", lambda run, question, *since: report_more(*since))
    monkeypatch.setattr(quarantine_log, "SECONDS_BETWEEN", 0)
    with caplog.at_level(logging.WARNING):
        quarantine_log._follow(make_run(tmp_path), logging.getLogger("of the run"), stop)
    expected = [f"quarantined: {row}.png in infer: ValueError: no" for row in range(min(rows, 50))]
    if rows > 50:
        expected.append("70 rows were quarantined; the first 50 are logged")
    assert caplog.messages == expected
    assert len(expected) == logged
