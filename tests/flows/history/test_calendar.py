"""The days of a job that ran, and the days of its schedule that did not."""

from datetime import UTC, datetime
from pathlib import Path

from overnight.flows.history.calendar import calendar
from overnight.flows.history.history import read_history
from overnight.tasks.storage.location import Location
from tests.flows.history.states import publish, receipt


def test_days_that_the_schedule_takes_and_that_never_ran_are_missing(tmp_path: Path) -> None:
    settings = {"schedule": {"cron": "0 2 * * 1-5"}}
    for day in ("2026-01-01", "2026-01-06"):  # a Thursday and a Tuesday
        publish(tmp_path, receipt(day, settings=settings))
    history = read_history(Location(str(tmp_path)))
    [[month]] = calendar(history, datetime(2026, 1, 9, 12, tzinfo=UTC))
    assert month.days == {1: "published", 4: "missing", 5: "missing", 6: "published", 7: "missing", 8: "missing"}
    [[month]] = calendar(history, datetime(2026, 1, 9, 1, tzinfo=UTC))  # an hour before the run of the 8th
    assert max(month.days) == 7
    for line in history.lines:
        assert isinstance(line.receipt, dict)
        line.receipt["settings"] = {}
    [[month]] = calendar(history, datetime(2026, 1, 9, tzinfo=UTC))
    assert sorted(month.days) == [1, 2, 3, 4, 5, 6]


def test_days_after_a_range_are_not_missing(tmp_path: Path) -> None:
    for day in range(1, 6):
        publish(tmp_path, receipt(f"2026-01-0{day}", settings={"schedule": {"cron": "0 2 * * *"}}))
    history = read_history(Location(str(tmp_path)), first="2026-01-02", last="2026-01-03")
    [[month]] = calendar(history, datetime(2026, 1, 9, tzinfo=UTC))
    assert sorted(month.days) == [2, 3]
