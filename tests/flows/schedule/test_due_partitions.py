"""Which partitions of `partitions` a run takes, and by when: over changes of the clock, downtimes and leap days."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.flows.schedule.catch_up import why_skipped
from overnight.flows.schedule.cron import cron_times
from overnight.flows.schedule.deadlines import deadline_of, latest_deadlines
from overnight.flows.schedule.partitions import (
    chosen,
    due_partitions,
    is_due,
    only_partition,
    partitions_before,
    partitions_between,
)
from overnight.tasks.config.periods import number_of, start_of
from overnight.tasks.errors import JobError
from tests import jobs


def job(partitions: dict[str, Any], place: Path = Path("/x"), **schedule: Any) -> Job:
    source = {"kind": "jsonl", "path": f"{place}/in/{{partition}}/"}
    return jobs.load(place, source=source, partitions=partitions, schedule={"cron": "20 * * * *", **schedule})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(one: Job, moment: str) -> list[str]:
    return due_partitions(one, None, utc(moment), utc(moment))


HOURS, REGIONS = {"every": "hour"}, {"date": "day", "region": ["us", "eu"]}
NIGHT = {"cron": "0 2 * * *"}


def test_a_scheduled_run_takes_what_has_ended_since_the_one_before_it() -> None:
    assert due(job(HOURS), "2026-11-19T06:20") == ["2026-11-19T05"]
    assert due(job(HOURS, cron="20 */3 * * *"), "2026-11-19T06:20") == [f"2026-11-19T0{hour}" for hour in (3, 4, 5)]
    assert due(job(HOURS, **NIGHT), "2026-11-19T02:00")[::23] == ["2026-11-18T02", "2026-11-19T01"]
    assert due(job(REGIONS, **NIGHT), "2024-03-01T02:00") == ["2024-02-29,eu", "2024-02-29,us"]
    assert due(job({"every": "week"}, cron="0 2 * * 1"), "2026-11-23T02:00") == ["2026-W47"]
    assert due(job({"every": "month"}, cron="0 2 1 * *"), "2026-12-01T02:00") == ["2026-11"]
    assert due(job({"region": ["us", "eu"]}), "2026-11-19T06:20") == ["eu", "us"]
    often = job({"every": "day"}, cron="0 */6 * * *")
    assert [due(often, f"2026-11-19T{hour}:00") for hour in ("00", "06")] == [["2026-11-18"], ["2026-11-18"]]
    assert due(job({"every": "day"}, cron="0 2 * * *", offset_days=0), "2026-11-19T02:00") == ["2026-11-19"]


ZONES = ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe"]
CRONS = ["20 * * * *", "0 2 * * *", "30 2 * * 1-5", "0 */7 * * *", "59 23 * * *", "0 3 1 * *"]


@given(
    st.sampled_from(["hour", "day", "week", "month"]),
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2017, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
)
def test_no_period_is_missing_or_taken_twice_by_schedules_that_are_at_most_as_frequent(
    every: str, cron: str, zone: str, begin: datetime
) -> None:
    one = job({"every": every}, cron=cron, timezone=zone)
    assert one.schedule
    assert one.partitions
    fires = cron_times(one.schedule, begin, begin + timedelta(days=70))[:40]
    names = [name for fire in fires for name in due_partitions(one, None, fire, fire)]
    numbers = [number_of(one.partitions.every or "day", name) for name in names]
    assert sorted(set(numbers)) == list(range(numbers[0], numbers[-1] + 1))
    for fire in fires:
        own = due_partitions(one, None, fire, fire)
        ends = [start_of(one.partitions.every or "day", one.partitions.number(name) + 1, one.timezone) for name in own]  # type: ignore[operator]
        assert max(ends) <= fire
    if every == "hour":
        assert len(set(names)) == len(names)


def test_start_and_the_present_bound_what_is_there() -> None:
    one = job({"every": "hour", "start": "2026-11-19T05"})
    names = partitions_between(one, date(2026, 11, 18), date(2026, 11, 20))
    assert [names[0], names[-1], len(names)] == ["2026-11-19T05", "2026-11-20T23", 43]
    assert [name for name in names if is_due(one, name, utc("2026-11-19T07:30"))] == names[:2]
    with pytest.raises(JobError, match="expected 2026-11-19T05 or later"):
        due(one, "2026-11-19T05:20")
    with pytest.raises(JobError, match="expected one of 2026-11-18,eu, 2026-11-18,us, which are all due"):
        only_partition(job(REGIONS, **NIGHT), None, utc("2026-11-19T12:00"))


def test_the_hours_of_days_on_which_a_clock_changes_are_those_of_utc() -> None:
    one = job(HOURS, timezone="Europe/Berlin")
    for day in (date(2026, 3, 29), date(2026, 10, 25)):
        assert partitions_between(one, day, day) == [f"{day}T{hour:02}" for hour in range(24)]


def test_conditions_choose_by_value_and_refuse_what_no_partition_has() -> None:
    names = partitions_between(job(REGIONS), date(2026, 11, 1), date(2026, 11, 3))
    assert chosen("date,region", names, ["region=eu", "date=2026-11-02,2026-11-03"]) == [
        "2026-11-02,eu",
        "2026-11-03,eu",
    ]
    for condition, message in {
        "region=asia": "found asia",
        "zone=eu": "COLUMN=VALUE",
        "region": "COLUMN=VALUE",
    }.items():
        with pytest.raises(JobError, match=message):
            chosen("date,region", names, [condition])


def test_lookback_reaches_days_back_in_periods_of_any_length() -> None:
    assert partitions_before(job(HOURS), "2026-11-19T05", 1)[::23] == ["2026-11-18T05", "2026-11-19T04"]
    assert partitions_before(job(REGIONS), "2026-11-19,us", 1) == ["2026-11-18,eu", "2026-11-18,us"]
    assert partitions_before(job({"every": "week"}), "2026-W47", 8) == ["2026-W45", "2026-W46"]
    assert partitions_before(job({"every": "month"}), "2026-03", 31) == ["2026-01", "2026-02"]
    assert partitions_before(job({"region": ["eu", "us"]}), "eu", 3) == []


def test_a_period_is_due_by_the_first_deadline_after_the_run_that_takes_it() -> None:
    one = job(HOURS, deadline="06:00")
    assert deadline_of(one, "2026-11-19T04").deadline == utc("2026-11-19T06:00")
    assert deadline_of(one, "2026-11-19T05").deadline == utc("2026-11-20T06:00")
    names = [each.partition for each in latest_deadlines(one, utc("2026-11-19T06:00"))]
    assert [names[0], names[-1], len(names)] == ["2026-11-18T05", "2026-11-19T04", 24]
    both = [
        each.partition for each in latest_deadlines(job(REGIONS, deadline="06:00", **NIGHT), utc("2026-11-19T06:00"))
    ]
    assert both == ["2026-11-18,eu", "2026-11-18,us"]
    region = job({"region": ["eu"]}, deadline="06:00", **NIGHT)
    assert deadline_of(region, "eu", utc("2026-11-19T07:00")).deadline == utc("2026-11-19T06:00")


def test_a_late_run_names_what_the_newest_one_takes_instead() -> None:
    one = job(HOURS, catch_up="latest")
    taken = {utc("2026-11-19T06:20"), utc("2026-11-19T09:20")}
    reason = why_skipped(one, utc("2026-11-19T06:20"), utc("2026-11-19T10:00"), taken)
    assert "2026-11-19T05 was due at 2026-11-19 06:20 UTC" in reason
    assert "2026-11-19T08, due at 2026-11-19 09:20 UTC, runs instead" in reason


def test_the_status_lists_each_partition_of_a_range_and_those_whose_value_is_gone(tmp_path: Path) -> None:
    now = utc("2026-11-19T02:30")
    one = job({"hour": "hour", "region": ["eu", "us"]}, tmp_path)
    state = tmp_path / "out/_overnight"
    for name in ("date,hour,region=2026-11-18T23,asia", "date,hour,region=nonsense", "date=2026-11-18", "backfills"):
        (state / name).mkdir(parents=True)
    entries = [entry.partition for entry in read_ledger(one, now=now)]
    expected = [f"2026-11-{hour},{region}" for hour in ("18T23", "19T00", "19T01") for region in ("eu", "us")]
    assert entries[0] == "2026-11-18T00,eu"
    assert entries[-7:] == ["2026-11-18T23,asia", *expected]
    where = read_ledger(one, date(2026, 11, 19), date(2026, 11, 20), now=now, where=["region=us"])
    assert [entry.partition for entry in where] == ["2026-11-19T00,us", "2026-11-19T01,us"]
    assert [entry.partition for entry in read_ledger(job({"region": ["us", "eu"]}, tmp_path), now=now)] == ["eu", "us"]
    with pytest.raises(JobError, match="partitions have no time"):
        read_ledger(job({"region": ["eu"]}, tmp_path), date(2026, 11, 19), now=now)
