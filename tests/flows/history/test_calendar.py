"""The days of a job that ran, and the days of its schedule that did not."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from overnight.flows.history.calendar import calendar
from overnight.flows.history.history import read_history
from overnight.flows.history.pages import job_page
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


HOURS = {"every": "hour", "values": {"region": ["eu", "us"]}, "start": "2026-01-08T21"}


def publish_hours(state: Path, names: list[str], **settings: Any) -> None:
    for name in names:
        publish(state, receipt(name, settings={"partitions": HOURS, **settings}))
        (state / f"date={name}").rename(state / f"date,hour,region={name}")


def test_hours_of_each_region_that_never_ran_are_missing(tmp_path: Path) -> None:
    publish_hours(tmp_path, ["2026-01-08T22,eu", "2026-01-09T00,us"], schedule={"cron": "20 * * * *"})
    history = read_history(Location(str(tmp_path)))
    lines = {month.name: month.days for [month] in calendar(history, datetime(2026, 1, 9, 2, 30, tzinfo=UTC))}
    assert lines == {
        "us 2026-01-09": {0: "published", 1: "missing"},
        "us 2026-01-08": {22: "missing", 23: "missing"},
        "eu 2026-01-09": {0: "missing", 1: "missing"},
        "eu 2026-01-08": {22: "published", 23: "missing"},
    }
    page = job_page(history, "state")
    assert 'title="2026-01-08T22,eu: published"' in page
    assert '<td class="day missing"><span title="2026-01-08T23,eu: missing">' in page


def test_the_regions_of_a_day_are_side_by_side(tmp_path: Path) -> None:
    publish_hours(tmp_path, [f"2026-01-0{day}T22,{region}" for day in (8, 9) for region in ("eu", "us")])
    lines = calendar(read_history(Location(str(tmp_path))), datetime(2026, 1, 10, tzinfo=UTC))
    names = [month.name for [month] in lines]
    assert names == ["eu 2026-01-09", "us 2026-01-09", "eu 2026-01-08", "us 2026-01-08"]


def test_a_partition_that_ran_before_the_shown_lines_is_not_missing(tmp_path: Path) -> None:
    publish_hours(tmp_path, ["2026-01-08T22,eu", "2026-01-08T22,us", "2026-01-08T23,us"])
    history = read_history(Location(str(tmp_path)), newest=2)
    lines = {month.name: month.days for [month] in calendar(history, datetime(2026, 1, 10, tzinfo=UTC))}
    assert lines == {"us 2026-01-08": {22: "published", 23: "published"}, "eu 2026-01-08": {23: "missing"}}


def test_a_region_that_never_ran_is_missing(tmp_path: Path) -> None:
    publish(tmp_path, receipt("eu", settings={"partitions": {"values": {"region": ["eu", "us"]}}}))
    (tmp_path / "date=eu").rename(tmp_path / "region=eu")
    lines = {month.name: month.days for [month] in calendar(read_history(Location(str(tmp_path))))}
    assert lines == {"eu": {1: "published"}, "us": {1: "missing"}}
