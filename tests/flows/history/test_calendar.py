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
    lines = read_history(Location(str(tmp_path))).lines
    [[month]] = calendar(lines, datetime(2026, 1, 9, 12, tzinfo=UTC))
    assert month.days == {1: "published", 4: "missing", 5: "missing", 6: "published", 7: "missing"}
    without_schedule = [line for line in lines if not line.receipt.__setitem__("settings", {})]  # type: ignore[index]
    [[month]] = calendar(without_schedule, datetime(2026, 1, 9, tzinfo=UTC))
    assert sorted(month.days) == [1, 2, 3, 4, 5, 6]
