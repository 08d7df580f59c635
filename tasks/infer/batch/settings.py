"""The settings of batches. They change when and at which price a row is answered, not the answer."""

import re
from datetime import datetime, timedelta, tzinfo
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.config.settings import AdjustableText, Settings

# The most requests of a batch, and megabytes of their file. Mistral and Gemini take larger files.
LIMITS = {
    **dict.fromkeys(("openai", "azure"), (50_000, 200)),
    **dict.fromkeys(("together", "groq"), (50_000, 100)),
    "mistral": (1_000_000, 500),
    "anthropic": (100_000, 256),
    "gemini": (1_000_000, 500),
}
WITHOUT_WINDOW = ("anthropic", "gemini")
CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


class BatchSettings(Settings):
    """Sends the requests of a model through the batch API of its provider."""

    dialect: Annotated[
        Literal["openai", "azure", "together", "groq", "mistral", "anthropic", "gemini"],
        Field(description="The provider whose batch API it is."),
    ] = "openai"
    window: Annotated[
        AdjustableText,
        Field(pattern=r"^\d+[hd]$", description="The time in which the provider has to answer, such as 24h."),
    ] = "24h"
    rows: Annotated[PositiveInt, Field(le=1_000_000, description="The most requests of one batch.")] = 50_000
    megabytes: Annotated[PositiveInt, Field(le=500, description="The largest file of requests, in 10^6 bytes.")] = 100
    enqueued_tokens: Annotated[
        PositiveInt | None,
        Field(description="The most tokens in all batches that are under way, as the provider limits them."),
    ] = None
    poll_seconds: Annotated[
        float, Field(ge=1, description="The time between two looks at the batches. No worker waits meanwhile.")
    ] = 60
    then: Annotated[
        Literal["again", "online"],
        Field(
            description="What follows for a row that a batch left without an answer: another batch, three at most, or "
            "a request outside batches. A row that the provider refused gets one request outside batches."
        ),
    ] = "again"
    finish_by: Annotated[
        AdjustableText | None,
        Field(
            description="A time of day in the job's time zone, such as 05:30. The batches are cancelled then, and the "
            "rows without an answer get a request outside batches."
        ),
    ] = None
    price: Annotated[
        float, Field(ge=0, le=1, description="The price of a token in a batch, as a share of its usual price.")
    ] = 0.5

    @field_validator("finish_by")
    @classmethod
    def _is_a_time_of_day(cls, finish_by: str | None) -> str | None:
        if finish_by is not None and not CLOCK.fullmatch(finish_by):
            raise ValueError(f"expected a time of day such as 05:30, found {finish_by!r}")
        return finish_by

    @model_validator(mode="after")
    def _fits_the_dialect(self) -> "BatchSettings":
        rows, megabytes = LIMITS[self.dialect]
        if self.megabytes > megabytes:
            raise ValueError(f"megabytes: {self.dialect} takes files of at most {megabytes}, found {self.megabytes}")
        if self.rows > rows:
            raise ValueError(f"rows: {self.dialect} takes at most {rows:,} requests in a batch, found {self.rows:,}")
        if self.dialect in WITHOUT_WINDOW and self.window != "24h":
            raise ValueError(f"window: {self.dialect} has a window of its own, found {self.window}. Leave it out")
        return self

    def deadline(self, began_at: datetime, zone: tzinfo) -> float | None:
        """Return the first `finish_by` after `began_at`, in seconds since 1970; None if there is none."""
        if self.finish_by is None:
            return None
        hour, minute = map(int, self.finish_by.split(":"))
        local = began_at.astimezone(zone)
        end = local.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if end <= local:
            end += timedelta(days=1)
        return end.timestamp()
