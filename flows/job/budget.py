"""The settings of `budget`: what one partition may cost, and how long one of its runs may take."""

from typing import Annotated

from pydantic import Field

from overnight.tasks.config.settings import Settings


class Budget(Settings):
    """The limits of one partition. At a limit the run fails, keeps what is done, and a larger budget goes on."""

    cost: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="The most that answers of endpoints may cost, in the currency of the models' prices, all "
            "attempts and failed rows together.",
        ),
    ] = None
    tokens: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="The same of tokens, prompts and answers together."),
    ] = None
    minutes: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="The most minutes of a run from its start, waits included. Each new run has as many again.",
        ),
    ] = None

    @property
    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by their keys."""
        return self.model_dump(exclude_none=True)
