"""A `deduplicate` in the stream: a first reading of the partition decides by a key of each row, the second drops rows.

`tasks/duplicates/` has the comparison.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.decision import judged
from overnight.tasks.duplicates.places import FAILED, KEYS, places_of
from overnight.tasks.duplicates.rule import Rule, keyed
from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.input_columns import require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows.blocks import QUARANTINED, live_rows
from overnight.tasks.rows.result import Outcome, Work
from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import RowIsolation

FAILED_BEFORE = (
    "deduplicate: this row failed when the rows were read for their keys, and not now. It has no key, so it may repeat "
    "another row. The log of the run has the first error."
)


@dataclass(frozen=True)
class Decided:
    """The step that takes the place of a `deduplicate` in the stream.

    `number` counts the job's `deduplicate` steps from 0, and names the folder with the decision.
    """

    number: int
    kind: Literal["deduplicate"] = "deduplicate"
    rows_at_once: int = PreprocessStep.rows_at_once

    def work_on(self, block: pa.Table, run: Run) -> Work:
        """Return the work that filters the duplicates. It must be called once, with all live rows of `block`.

        A row that failed in the first reading fails again, because no decision covers it.
        """
        is_duplicate, failures = judged(run.duplicates / str(self.number), *_identity(block))
        errors = {row: RowError(FAILED_BEFORE) for row in np.flatnonzero(failures).tolist()}
        return lambda _: Outcome(keep=~is_duplicate, failed=errors)


def _identity(block: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays that together identify each row of `live_rows(block)` in the partition.

    They are the unit, the source row's number in its file, and the row's number among the rows made of this source row.
    """
    _, sources = live_rows(block)
    units, rows = (block[name].to_numpy()[sources] for name in ("__unit", "__row"))
    return units, rows, places_of(units, rows)


@dataclass(frozen=True)
class Keys(Stage):
    """Runs `steps`, and makes tables (schema `KEYS`) with the key by which `rule` compares each row.

    A row that failed has a null key, and `FAILED` as its place.
    """

    steps: Stage
    rule: Rule

    label, counts_as = "keys", "preprocess"

    def load(self, run: Run) -> "LoadedKeys":
        return LoadedKeys(self.steps.load(run), self.rule)


@dataclass(frozen=True)
class LoadedKeys:
    steps: Loaded
    rule: Rule

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        for block in self.steps.on(blocks, isolation):
            quarantine = block.filter(pa.array(block["__state"].to_numpy() == QUARANTINED))
            places = np.full(len(quarantine), FAILED, np.int32)
            nulls = pa.nulls(len(quarantine), KEYS[3].type)
            yield pa.table([quarantine["__unit"], quarantine["__row"], places, nulls], KEYS)
            rows, _ = live_rows(block)
            if len(rows):
                require_columns(rows, self.rule.columns, "deduplicate")
                yield keyed(rows, self.rule, *_identity(block))
