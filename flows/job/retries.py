"""The settings of `retries`: the number of tries, and the delays between them."""

import math
from typing import Annotated

from pydantic import Field

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.config.settings import Settings


class Retries(Settings):
    """Retries of a task that failed because a worker, a node or storage failed, and of a run whose process died."""

    attempts: Annotated[int, Field(ge=1, le=50, description="The number of tries, the first included.")] = 3
    delay_seconds: Annotated[float, Field(ge=0, description="The wait before the second try, about.")] = 5.0
    backoff: Annotated[float, Field(ge=1, description="The factor from one wait to the next.")] = 2.0

    def delays(self) -> list[float]:
        """Return the delay in seconds before each try after the first, without the jitter that Prefect adds."""
        return list(RetryPolicy(self.attempts, self.delay_seconds, math.inf, (1, 1), self.backoff).waits())
