"""Hours, days, weeks and months as whole numbers, which follow each other without a gap.

A day, week or month begins at midnight in a time zone, so a day has 23 to 25 hours where the clock changes. An hour is
one of UTC, and its name too: no hour is missing or comes twice.
"""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal

from overnight.tasks.config.partition_names import TIME
from overnight.tasks.errors import JobError

Unit = Literal["hour", "day", "week", "month"]
HOUR = timedelta(hours=1)
EXAMPLES: dict[Unit, str] = {
    "hour": "2026-11-19T05",
    "day": "2026-11-19",
    "week": "2026-W47",
    "month": "2026-11",
}
COLUMNS: dict[Unit, tuple[str, ...]] = {
    "hour": ("date", "hour"),
    "day": ("date",),
    "week": ("week",),
    "month": ("month",),
}


def number_of(unit: Unit, name: str) -> int:
    """Return the number of the period with this name. Raise `JobError` for another text."""
    match = TIME.fullmatch(name)
    try:
        if match and match["hour"] and unit == "hour":
            return _hours(datetime.combine(date.fromisoformat(match["date"]), time(int(match["hour"])), UTC))
        if match and match["week"] and unit == "week":
            return number_of_day(unit, date.fromisoformat(name))
        if match and match["month"] and unit == "month":
            return number_of_day(unit, date.fromisoformat(f"{name}-01"))
        if match and match["date"] and not match["hour"] and unit == "day":
            return date.fromisoformat(name).toordinal()
    except ValueError as error:
        raise JobError(f"partition: expected a {unit} such as {EXAMPLES[unit]}, found {name} ({error}).") from None
    raise JobError(f"partition: expected a {unit} such as {EXAMPLES[unit]}, found {name}.")


def name_of(unit: Unit, number: int) -> str:
    """Return the name of a period, as in `EXAMPLES`."""
    day = first_day(unit, number)
    if unit == "hour":
        return f"{day.isoformat()}T{number % 24:02}"
    if unit == "week":
        return day.strftime("%G-W%V")
    return day.isoformat() if unit == "day" else day.isoformat()[:7]


def number_of_day(unit: Unit, day: date) -> int:
    """Return the number of the period that has this day; of hours, that of the day's first hour."""
    if unit == "hour":
        return _hours(datetime.combine(day, time(), UTC))
    if unit == "week":
        return (day.toordinal() - 1) // 7  # the day 1 of the calendar is a Monday
    return day.toordinal() if unit == "day" else day.year * 12 + day.month - 1


def number_at(unit: Unit, moment: datetime, zone: tzinfo) -> int:
    """Return the number of the period that has this moment."""
    if unit == "hour":
        return _hours(moment.astimezone(UTC))
    return number_of_day(unit, moment.astimezone(zone).date())


def first_day(unit: Unit, number: int) -> date:
    """Return the first day of a period, or the day of an hour."""
    if unit == "hour":
        return date(1970, 1, 1) + timedelta(days=number // 24)
    if unit == "week":
        return date.fromordinal(number * 7 + 1)
    return date.fromordinal(number) if unit == "day" else date(number // 12, number % 12 + 1, 1)


def periods_inside(unit: Unit, zone: tzinfo, outer: Unit, name: str, outer_zone: tzinfo) -> list[str]:
    """Return the names of the shorter periods in a period of `outer`: 23 to 25 hours for a day."""
    number = number_of(outer, name)
    first = number_at(unit, start_of(outer, number, outer_zone), zone)
    end = number_at(unit, start_of(outer, number + 1, outer_zone), zone)
    return [name_of(unit, period) for period in range(first, end)]


def start_of(unit: Unit, number: int, zone: tzinfo) -> datetime:
    """Return the moment in UTC at which a period begins. It ends where the next one begins."""
    if unit == "hour":
        return datetime(1970, 1, 1, tzinfo=UTC) + number * HOUR
    return datetime.combine(first_day(unit, number), time(), zone).astimezone(UTC)


def _hours(moment: datetime) -> int:
    return int(moment.timestamp() // 3600)
