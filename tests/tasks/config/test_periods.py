from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.config.periods import HOUR, Unit, first_day, name_of, number_at, number_of, number_of_day, start_of
from overnight.tasks.errors import JobError

UNITS: list[Unit] = ["hour", "day", "week", "month"]
# clocks that change at midnight, by half an hour, twice a year in the south, never, and that skipped a whole day
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia"]
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2060, 12, 31), timezones=st.just(UTC))


@given(st.sampled_from(UNITS), st.sampled_from(ZONES), MOMENTS)
def test_each_moment_is_in_exactly_one_period_and_periods_follow_each_other(
    unit: Unit, zone_name: str, moment: datetime
) -> None:
    zone = ZoneInfo(zone_name)
    number = number_at(unit, moment, zone)
    start, end = (start_of(unit, each, zone) for each in (number, number + 1))
    assert start <= moment < end
    assert number_at(unit, end, zone) == number + 1
    assert number_at(unit, end - timedelta(microseconds=1), zone) == number


@given(st.sampled_from(UNITS), MOMENTS)
def test_a_name_has_its_period_and_names_sort_by_time(unit: Unit, moment: datetime) -> None:
    number = number_at(unit, moment, UTC)
    name = name_of(unit, number)
    assert number_of(unit, name) == number
    assert name < name_of(unit, number + 1)
    assert first_day(unit, number) <= moment.date()
    assert number_of_day(unit, first_day(unit, number)) == number - (number % 24 if unit == "hour" else 0)


@pytest.mark.parametrize("zone_name", ZONES)
@pytest.mark.parametrize("day", [date(2026, 3, 29), date(2026, 10, 25), date(2026, 3, 8), date(2024, 2, 29)])
def test_the_hours_of_a_day_are_those_of_its_clock_and_none_is_missing_or_doubled(zone_name: str, day: date) -> None:
    zone = ZoneInfo(zone_name)
    start, end = (start_of("day", day.toordinal() + number, zone) for number in (0, 1))
    moments = [start + number * HOUR for number in range(round((end - start) / HOUR))]
    names = [name_of("hour", number_at("hour", moment, zone)) for moment in moments]
    assert len(set(names)) == len(names) in (23, 24, 25)
    assert {len(name) for name in names} == {13}


def test_names_of_odd_periods() -> None:
    assert name_of("week", number_of_day("week", date(2027, 1, 1))) == "2026-W53"
    assert first_day("week", number_of("week", "2026-W53")) == date(2026, 12, 28)
    assert name_of("month", number_of_day("month", date(2024, 2, 29))) == "2024-02"
    assert name_of("hour", number_of("hour", "2026-12-31T23") + 1) == "2027-01-01T00"


WRONG: list[tuple[Unit, str]] = [
    ("hour", "2026-11-19"), ("hour", "2026-11-19T24"), ("hour", "2026-11-19T5"), ("day", "2026-11-19T05"),
    ("day", "2026-02-30"), ("week", "2026-W54"), ("week", "2027-W53"), ("month", "2026-13"), ("month", "2026-1"),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "name"), WRONG)
def test_another_text_is_refused_with_an_example(unit: Unit, name: str) -> None:
    with pytest.raises(JobError, match=f"expected a {unit} such as .*, found {name}"):
        number_of(unit, name)
