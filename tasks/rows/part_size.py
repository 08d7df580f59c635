"""The size of a staged part."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class PartSize:
    """The job's settings for the size of staged parts.

    A part has at least `rows` rows. If `rows` is None, it has the rows that arrive within `seconds`.
    """

    rows: int | None
    seconds: float

    def is_due(self, rows: int, seconds: float) -> bool:
        """Return True if `rows` finished rows are enough for a part; the first has waited for `seconds`."""
        return rows >= self.rows if self.rows else seconds >= self.longest

    @property
    def longest(self) -> float:
        """Return the seconds after which a Ray task passes on its finished rows; infinite if `rows` is set.

        They wait as long again for a part, and the last third is for its writer.
        """
        return math.inf if self.rows else self.seconds / 3
