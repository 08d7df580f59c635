"""The settings of `schedule`: the times of a job, the partition that it takes, and its deadline."""

import re
from datetime import datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import Field, ValidationError, field_validator, model_validator

from overnight.tasks.config.settings import Settings
from overnight.tasks.errors import did_you_mean

# Prefect takes each of these that CronSim takes: tests/flows/job/test_model.py
PLAIN_CRON = re.compile(r"[0-9*,/-]+( [0-9*,/-]+){4}")


class Schedule(Settings):
    """The times at which the job runs by itself, and the partition that it then takes."""

    cron: Annotated[str, Field(description="Five cron fields.", examples=["0 2 * * *"])]
    timezone: Annotated[str, Field(description="The IANA name of the clock of cron, partitions and deadline.")] = "UTC"
    offset_days: Annotated[
        int, Field(ge=-3660, le=3660, description="The partition's day relative to the scheduled day.")
    ] = -1
    catch_up: Annotated[
        Literal["all", "latest", "none"], Field(description="Which of the partitions run that a downtime skipped.")
    ] = "latest"
    lookback_days: Annotated[int, Field(ge=0, description="Earlier days that run again if their inputs changed.")] = 0
    deadline: Annotated[
        str | None,
        Field(
            pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$",
            examples=["06:00"],
            description="The time of day by which the partition should be published.",
        ),
    ] = None
    notify: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9-]+/[a-z0-9-]+$",
            examples=["slack-webhook/team"],
            description="The Prefect notification block that reports a partition that is late.",
        ),
    ] = None

    @field_validator("cron")
    @classmethod
    def _cron(cls, cron: str) -> str:
        try:
            CronSim(cron, datetime.min)  # computes a schedule's days; it refuses @daily and the 30th of February
            if not PLAIN_CRON.fullmatch(cron):
                from prefect.client.schemas.schedules import CronSchedule  # its import takes as long as all others

                CronSchedule(cron=cron)  # the check of Prefect's scheduler
        except (ValidationError, CronSimError):
            raise ValueError(f"expected five cron fields, for example '0 2 * * *', found {cron!r}") from None
        return cron

    @model_validator(mode="after")
    def _a_notification_has_a_deadline(self) -> "Schedule":
        if self.notify and not self.deadline:
            raise ValueError(f"deadline: expected a time of day, because notify is {self.notify}, found none; set one")
        return self

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, timezone: str) -> str:
        return zone_name(timezone)


def zone_name(timezone: str) -> str:
    """Return the IANA name of a time zone. Raise `ValueError` for other text."""
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        close = did_you_mean(timezone, available_timezones())
        raise ValueError(f"expected an IANA name such as Europe/Berlin, found {timezone!r}{close}") from None
    return timezone
