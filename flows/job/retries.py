"""How often a run is tried again, and after how long."""

from typing import Annotated

from pydantic import Field

from overnight.tasks.config.settings import Settings


class Retries(Settings):
    """How often a task is tried again that lost a worker, a node or storage, and a run whose process died."""

    attempts: Annotated[int, Field(ge=1, le=50, description="The number of tries, the first included.")] = 3
    delay_seconds: Annotated[float, Field(ge=0, description="The wait before the second try, about.")] = 5.0
    backoff: Annotated[float, Field(ge=1, description="The factor from one wait to the next.")] = 2.0

    def delays(self) -> list[float]:
        """Seconds before each try but the first."""
        return [self.delay_seconds * self.backoff**number for number in range(self.attempts - 1)]
