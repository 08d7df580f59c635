"""The settings of `notify`: who gets a message about a job's partitions, and for which events."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from overnight.tasks.config.settings import Settings

# A run can have several at the same time, such as published, quarantined and drift.
Event = Literal["published", "failed", "budget", "late", "quarantined", "drift"]


class Receiver(Settings):
    """A notification block of the Prefect server, or a webhook, and the events for which it gets a message."""

    on: Annotated[
        list[Event],
        Field(
            min_length=1,
            description="published and failed: a run ended so; budget: a run failed at the job's budget; late: the "
            "partition is not published at schedule.deadline; quarantined: more rows than quarantined_over; drift: the "
            "report marks a column.",
        ),
    ]
    block: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9-]+/[a-z0-9-]+$",
            examples=["slack-webhook/ops"],
            description="A notification block, as `prefect block ls` names it.",
        ),
    ] = None
    webhook: Annotated[
        str | None,
        Field(
            pattern=r"^\$\{\w+\}$",
            examples=["${HOOK}"],
            description="The environment variable that holds an address; it gets a POST of JSON.",
        ),
    ] = None
    quarantined_over: Annotated[
        float, Field(ge=0, lt=1, description="Above this share of the rows read, `quarantined` happens.")
    ] = 0.0

    @model_validator(mode="after")
    def _is_one_place(self) -> "Receiver":
        if bool(self.block) == bool(self.webhook):
            count = "both" if self.block else "neither"
            raise ValueError(f"expected either block or webhook, found {count}")
        if self.quarantined_over and "quarantined" not in self.on:
            raise ValueError(f"on: expected quarantined, because quarantined_over is {self.quarantined_over}; add it")
        return self

    @property
    def name(self) -> str:
        """Return the name of the place, which contains no address."""
        return self.block or f"the webhook {self.webhook}"
