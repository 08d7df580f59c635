"""The settings of `source.wait_for`: when the inputs of a partition are complete. `arrival.py` waits."""

from typing import Annotated

from pydantic import Field, model_validator

from overnight.tasks.config.settings import Leaf


class WaitFor(Leaf):
    """What has to be there before the inputs are listed; with both, both."""

    file: Annotated[
        str | None,
        Field(min_length=1, pattern="^[^/]", examples=["_SUCCESS"], description="A marker below source.path."),
    ] = None
    quiet_minutes: Annotated[
        float | None, Field(gt=0, description="No input was added, changed or removed for so long.")
    ] = None
    timeout_minutes: Annotated[float, Field(gt=0, description="Then the run fails.")] = 60.0

    @model_validator(mode="after")
    def _for_something(self) -> "WaitFor":
        if self.file is None and self.quiet_minutes is None:
            raise ValueError("expected file, quiet_minutes or both, found neither")
        return self
