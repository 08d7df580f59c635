"""How often a run is tried again, and after how long."""

import math
from typing import Annotated

from pydantic import Field

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.config.settings import Settings


class Retries(Settings):
    """Of a task that failed because a worker, a node or storage did, and of a run whose process died."""

    attempts: Annotated[int, Field(ge=1, le=50, description="Tries in all, the first among them.")] = 3
    delay_seconds: Annotated[float, Field(ge=0, description="Before the second try, about.")] = 5.0
    backoff: Annotated[float, Field(ge=1, description="Each later delay is so many times the one before.")] = 2.0

    def delays(self) -> list[float]:
        """Seconds before each try but the first, without jitter: Prefect adds its own."""
        return list(RetryPolicy(self.attempts, self.delay_seconds, math.inf, (1, 1), self.backoff).waits())
