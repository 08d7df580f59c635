"""Run a `deduplicate` in the stream. A first reading of the whole partition has decided which rows are dropped."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.decision import judged
from overnight.tasks.duplicates.places import places_of
from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import blocks
from overnight.tasks.rows.result import Outcome, Work
from overnight.tasks.state.run import Run

FAILED_BEFORE = (
    "deduplicate: this row failed when the rows were read for their keys, and not now. It has no key, so it may repeat "
    "another row. The log of the run has the first error."
)


@dataclass(frozen=True)
class Decided:
    """The step that takes the place of a `deduplicate` in the stream. A first reading of all rows found the duplicates.

    `number` counts the job's `deduplicate` steps from 0, and names the folder with the decision.
    """

    number: int
    kind: Literal["deduplicate"] = "deduplicate"
    rows_at_once: int = PreprocessStep.rows_at_once

    def work_on(self, block: pa.Table, run: Run) -> Work:
        """Return the work that filters the duplicates. It must be called once, with all live rows of `block`.

        A row that failed in the first reading fails again, because no decision covers it.
        """
        units, rows, places = identity(block)
        gone, failed = judged(run.duplicates / str(self.number), units, rows, places)
        errors = {row: RowError(FAILED_BEFORE) for row in np.flatnonzero(failed).tolist()}
        return lambda _: Outcome(keep=~gone, failed=errors)


def identity(block: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays that together identify each row of `blocks.live_rows(block)` in the partition.

    They are the unit, the source row's number in its file, and the row's number among the rows made of this source row.
    """
    _, sources = blocks.live_rows(block)
    units, rows = (block[name].to_numpy()[sources] for name in ("__unit", "__row"))
    return units, rows, places_of(units, rows)
