"""What must hold before a partition is published."""

import math
from typing import Annotated

from pydantic import Field

from tasks.leaf import Leaf


class Checks(Leaf):
    """A failed check publishes nothing and leaves what was published before as it was."""

    min_rows: Annotated[int, Field(ge=0, description="Published rows that there must be at least.")] = 1
    max_quarantined: Annotated[
        float, Field(ge=0, le=1, description="The largest fraction of the source rows that may be quarantined.")
    ] = 0.01

    def quarantine_limit(self, rows_in: int) -> int:
        """Rows that may be quarantined of `rows_in`."""
        return math.floor(self.max_quarantined * rows_in + 1e-9)
