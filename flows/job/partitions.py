"""The settings of `partitions`: periods of time, values, or both. A job without the key has days, or `all`."""

import re
from datetime import date, timedelta, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, field_validator, model_validator

from overnight.flows.job.schedule import zone_name
from overnight.tasks.config.partition_names import PLACEHOLDER, is_value, partition_name, time_and_value
from overnight.tasks.config.periods import COLUMNS, EXAMPLES, Unit, first_day, name_of, number_of, number_of_day
from overnight.tasks.config.settings import Settings
from overnight.tasks.errors import JobError, shortened
from overnight.tasks.ingest.kinds import ShorterPartitions
from overnight.tasks.storage.location import Location

COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# the columns of periods, and the other parameters of a query of the source `sql`
RESERVED = {"partition", "first", "last", "date", "hour", "week", "month"}
UNITS: dict[str, Unit] = {"hour": "hour", "date": "day", "week": "week", "month": "month"}  # by column
KEYS = {"every", "start", "timezone", "values"}
NO_VALUE = ("",)
# a longer period consists of whole shorter ones in the same time zone; hours are those of any
INSIDE = {("hour", "day"), ("hour", "week"), ("hour", "month"), ("day", "week"), ("day", "month")}


class ValuesOf(Settings):
    """Where the values are that a job has now: in a file, or as the names of folders. A run reads them again."""

    file: Annotated[
        str | None, Field(min_length=1, description="A text file with a value on each line; # begins a comment.")
    ] = None
    folders: Annotated[
        str | None,
        Field(min_length=1, description="A folder: the name of each folder in it is a value, also as region=eu."),
    ] = None

    @model_validator(mode="after")
    def _one_place(self) -> "ValuesOf":
        if (self.file is None) == (self.folders is None):
            raise ValueError("expected either file or folders, found both or neither")
        return self

    def read(self, column: str) -> list[str]:
        """Return the values. Raise `JobError` for one that cannot be in a partition's name."""
        if self.file:
            lines = Location(self.file).read_bytes().decode().splitlines()
            values = list(filter(None, (line.partition("#")[0].strip() for line in lines)))
        else:
            names = Location(self.folders or "").folder_names()
            values = [name.removeprefix(f"{column}=") for name in names if name[0] not in "._"]
        try:
            return _checked(values)
        except ValueError as error:
            raise JobError(f"partitions.values.{column}, of {self.file or self.folders}: {error}.") from None


def _checked(values: list[str]) -> list[str]:
    for value in values:
        if not is_value(value):
            raise ValueError(
                "expected values of letters, digits, - and _ and single dots, other than all and no dates, "
                f"found {value!r}"
            )
    if not values or len(set(values)) < len(values):
        raise ValueError(f"expected at least one value, and each once, found {values}")
    return values


def _with_short_form(schema: dict[str, Any]) -> None:
    """Let the JSON schema of `values` also accept the values without a column: a list, a file or folders."""
    full = {name: schema.pop(name) for name in ("type", "additionalProperties")}
    schema["anyOf"] = [full, *full["additionalProperties"]["anyOf"]]


class Partitions(Settings):
    """The partitions of a job: each period of time, each value, or each value in each period."""

    # the short forms have columns as keys
    model_config = ConfigDict(json_schema_extra={"additionalProperties": {"type": ["string", "array", "object"]}})

    every: Annotated[Unit | None, Field(description="A partition for each of these periods; null: none of time.")] = (
        None
    )
    start: Annotated[
        str | None, Field(description="The first partition's time.", examples=["2026-11-19T05", "2026-11-01"])
    ] = None
    timezone: Annotated[
        str | None,
        Field(description="Where days, weeks and months begin, as an IANA name; default: schedule's. Hours: UTC."),
    ] = None
    values: Annotated[
        dict[str, list[str] | ValuesOf],
        Field(
            description="A column, and its values: a partition for each. A list, or a file or folders that have them.",
            examples=[{"region": ["eu", "us"]}],
            json_schema_extra=_with_short_form,
        ),
    ] = {}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, settings: Any) -> Any:
        """Accept `{date: day, region: [eu, us]}` and `{values: [eu, us]}`."""
        if not isinstance(settings, dict):
            return settings
        full = {key: value for key, value in settings.items() if key in KEYS}
        values = full.get("values", {})
        if isinstance(values, list) or (isinstance(values, dict) and {"file", "folders"} & values.keys()):
            values = {"value": values}
        for key, value in settings.items():
            if UNITS.get(key) == value and "every" not in settings:
                full["every"] = value
            elif key not in KEYS and isinstance(value, list | dict) and isinstance(values, dict):
                values = {**values, key: value}
            elif key not in KEYS:
                full[key] = value
        return {**full, "values": values} if values else full

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, timezone: str | None) -> str | None:
        return timezone and zone_name(timezone)

    @model_validator(mode="after")
    def _are_partitions(self) -> "Partitions":
        if not (self.every or self.values):
            raise ValueError("expected every, values or both, such as {every: hour} or {region: [eu, us]}, found none")
        if len(self.values) > 1:
            raise ValueError(f"expected one list of values at most, found {', '.join(self.values)}")
        for column, values in self.values.items():
            if column in RESERVED or not COLUMN.fullmatch(column):
                names = ", ".join(sorted(RESERVED))
                raise ValueError(f"values: expected a column's name other than {names}, found {column}")
            if isinstance(values, list):
                _checked(values)
        if self.every in (None, "hour") and self.timezone:
            raise ValueError("timezone: expected none, because hours are of UTC, and values have no time; leave it out")
        if self.start and not self.every:
            raise ValueError("start: expected every, because values have no time; leave start out")
        if self.start and self.every:
            try:
                number_of(self.every, self.start)
            except JobError:
                example = EXAMPLES[self.every]
                raise ValueError(f"start: expected the first {self.every}, as {example}, found {self.start}") from None
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the partition's columns, in the order of the folders: `date`, `hour`, `region`."""
        return (*(COLUMNS[self.every] if self.every else ()), *self.values)

    def reading(self, other: "Partitions", zone: tzinfo, other_zone: tzinfo) -> ShorterPartitions | None:
        """Return which partitions of another job a partition of this job reads; None: the one of its name.

        Raise `ValueError` if partitions of this job would share rows.
        """
        own_name, upstream_name = str(self.zone(zone)), str(other.zone(other_zone))
        is_longer = (other.every, self.every) in INSIDE
        if not is_longer and (
            self.every != other.every or (self.every not in (None, "hour") and own_name != upstream_name)
        ):
            raise ValueError(
                f"expected partitions of {other.every or 'values'} in {upstream_name}, or longer ones that consist of "
                f"them, found {self.every or 'values'} in {own_name}"
            )
        if is_longer and other.every == "day" and own_name != upstream_name:
            raise ValueError(f"expected partitions in {upstream_name}, found {own_name}")
        if self.values and self.values.keys() != other.values.keys():
            raise ValueError(
                f"expected values of {', '.join(other.values) or 'no column'}, found {', '.join(self.values)}"
            )
        values = other.value_names() if other.values and not self.values else ()
        if not (is_longer or values):
            return None
        if not is_longer:
            return ShorterPartitions(values=values, columns=self.columns)
        return ShorterPartitions(
            other.every, upstream_name, self.every, own_name, other.start or "", values, self.columns
        )

    def missing_in(self, texts: list[str]) -> list[str]:
        """Return the columns that no text names: partitions would read the same inputs."""
        names = set(PLACEHOLDER.findall(" ".join(texts)))
        if "partition" in names:
            return []
        return [column for column in self.columns if column not in names]

    def value_names(self) -> tuple[str, ...]:
        """Return the values of now, sorted; one empty text for a job without values."""
        for column, values in self.values.items():
            return tuple(sorted(values if isinstance(values, list) else values.read(column)))
        return NO_VALUE

    def zone(self, default: tzinfo) -> tzinfo:
        """Return the time zone in which periods begin."""
        if self.timezone:
            return ZoneInfo(self.timezone)
        return default

    def number(self, partition: str) -> int | None:
        """Return the number of a partition's period, or None. Raise `JobError` for another job's name."""
        time, value = time_and_value(partition)
        has_form = (bool(time), bool(value)) == (self.every is not None, bool(self.values))
        if not has_form or not (value == "" or is_value(value)):
            raise JobError(f"partition: expected a name such as {self.example}, found {partition}.")
        if self.every is None:
            return None
        return number_of(self.every, time)

    @property
    def example(self) -> str:
        """Return the name of a partition."""
        time, value = "", ""
        if self.every:
            time = EXAMPLES[self.every]
        if self.values:
            value = "eu"
        return partition_name(time, value)

    @property
    def begins_on(self) -> date | None:
        """Return the first day of the first period; None without `start`."""
        if self.every is None or self.first is None:
            return None
        return first_day(self.every, self.first)

    @property
    def first(self) -> int | None:
        """Return the number of the first period; None without `start`."""
        if self.every is None or self.start is None:
            return None
        return number_of(self.every, self.start)

    def checked(self, partition: str) -> str:
        """Return a partition's name. Raise `JobError` if the job has no such partition now."""
        number, value = self.number(partition), time_and_value(partition)[1]
        if value not in (values := self.value_names()):
            raise JobError(f"partition: expected one of {shortened(list(values), 20)}, found {value} in {partition}.")
        if number is not None and self.first is not None and number < self.first:
            raise JobError(f"partition: expected {self.start} or later (partitions.start), found {partition}.")
        return partition

    def named(self, numbers: range | list[int]) -> list[str]:
        """Return the partitions of these periods from `start` on; without periods, that of each value."""
        values = self.value_names()
        if self.every is None:
            return list(values)
        least = self.first
        times = [name_of(self.every, number) for number in numbers if least is None or number >= least]
        return [partition_name(time, value) for time in times for value in values]

    def numbers_in(self, start: date, end: date) -> range:
        """Return the periods that have a day from `start` to `end`, both included."""
        unit = self.every or "day"
        after = number_of_day(unit, end) + 1
        if unit == "hour":
            after = number_of_day(unit, end + timedelta(days=1))
        return range(number_of_day(unit, start), after)

    def has_day_in(self, partition: str, start: date | None, end: date | None) -> bool:
        """Return True if the partition has a day from `start` to `end`. Values have every day."""
        number = self.number(partition)
        if number is None or self.every is None:
            return True
        low = number_of_day(self.every, start) if start else number
        high = self.numbers_in(end, end)[-1] if end else number
        return low <= number <= high

    def first_day(self, partition: str) -> date | None:
        """Return the first day of a partition; None for a value."""
        number = self.number(partition)
        if number is None or self.every is None:
            return None
        return first_day(self.every, number)


DAYS = Partitions(every="day")  # of a job without `partitions` whose source has {partition}
