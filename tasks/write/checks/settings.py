"""The job's conditions for publishing a partition. They do not change results."""

import math
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from overnight.tasks.config.settings import Settings
from overnight.tasks.config.user_code import Target

Fraction = Annotated[float, Field(ge=0, le=1)]


class Drift(Settings):
    """How far a column may be from its state in the previous receipt."""

    mean: Annotated[
        float | None,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="The largest distance of the means, in standard deviations of the previous column.",
        ),
    ] = None
    shares: Annotated[
        Fraction | None,
        Field(description="The largest total variation distance between the shares of the values, 0 to 1."),
    ] = None

    @model_validator(mode="after")
    def _some_bound(self) -> "Drift":
        if self.mean is None and self.shares is None:
            raise ValueError("expected a bound on mean, shares or both, found neither")
        return self


class AgreementBound(Settings):
    """How many rows must agree with the rows of the same partition that are published already, by `row_id`."""

    model_config = ConfigDict(serialize_by_alias=True)

    against: Annotated[Literal["published"], Field(alias="with", description="The rows to compare with.")] = "published"
    at_least: Annotated[Fraction, Field(description="The smallest fraction of the rows in both that must agree.")]
    column: Annotated[
        str | None,
        Field(min_length=1, description="The column whose values must be equal; default: each `predicted_label`."),
    ] = None


class Checks(Settings):
    """A failed check publishes nothing and keeps the published rows unchanged."""

    min_rows: Annotated[int, Field(ge=0, description="The least number of published rows.")] = 1
    max_quarantined: Annotated[
        Fraction,
        Field(
            description="The largest fraction of the source rows that may be quarantined; above 0 it allows one row."
        ),
    ] = 0.01
    max_null: Annotated[
        dict[str, Fraction],
        Field(description="For each column, the largest fraction of its rows that may be null or NaN, or contain NaN."),
    ] = {}
    not_constant: Annotated[
        list[str], Field(description="Columns that must have two different values if there are two rows.")
    ] = []
    drift: Annotated[
        dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)] | Drift],
        Field(
            description="For each column, how far it may be from the previous receipt. A number limits the mean of "
            "numbers, or the shares of texts and truth values; `{mean: 0.5}` or `{shares: 0.2}` chooses."
        ),
    ] = {}
    agreement: Annotated[
        AgreementBound | None,
        Field(
            description="How far the rows must agree with the rows that they replace; passes if there are none.",
            examples=[{"with": "published", "at_least": 0.98}],
        ),
    ] = None
    python: Annotated[
        Target | None,
        Field(
            description="`module:function` of yours: it gets the receipt, the previous one and the rows, and returns "
            "problems or None."
        ),
    ] = None

    def quarantine_limit(self, rows_in: int) -> int:
        """Return how many of `rows_in` rows may be quarantined: at least one, unless `max_quarantined` is 0."""
        return max(fraction_of(self.max_quarantined, rows_in), int(self.max_quarantined > 0))

    def columns(self) -> dict[str, str]:
        """Return the columns that checks name, as setting -> column, such as `max_null.label` -> `label`."""
        columns = {}
        for setting in ("max_null", "not_constant", "drift"):
            for name in getattr(self, setting):
                columns[f"{setting}.{name}"] = name
        if self.agreement and self.agreement.column:
            columns["agreement.column"] = self.agreement.column
        return columns

    def drift_bounds(self, name: str, record: dict[str, Any]) -> dict[str, float]:
        """Return the bounds on the drift of the column `name`, by figure: `mean`, `shares` or both.

        A number in the job file bounds the mean if the statistics in `record` have one, and otherwise the shares.
        """
        bound = self.drift[name]
        if isinstance(bound, Drift):
            return bound.model_dump(exclude_none=True)
        return {"mean" if "mean" in record else "shares": bound}


def fraction_of(fraction: float, count: int) -> int:
    """Return `fraction * count`, rounded down."""
    return math.floor(fraction * count + 1e-9)  # 0.29 * 100 is 29
