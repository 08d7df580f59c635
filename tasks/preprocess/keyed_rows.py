"""The first reading of a partition that has a `deduplicate`: run the steps before it, and make a key of each row."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.places import FAILED, KEYS
from overnight.tasks.duplicates.rule import Rule, keyed
from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.preprocess.decided import identity
from overnight.tasks.preprocess.run_steps import Steps
from overnight.tasks.preprocess.steps.columns import require_columns
from overnight.tasks.rows.blocks import QUARANTINED, live_rows
from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import RowIsolation


@dataclass(frozen=True)
class Keys(Stage):
    """Runs `steps`, and makes tables (schema `KEYS`) with the key by which `rule` compares each row.

    A row that failed has a null key, and `FAILED` as its place.
    """

    steps: Steps
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
            failed = block.filter(pa.array(block["__state"].to_numpy() == QUARANTINED))
            places = np.full(len(failed), FAILED, np.int32)
            yield pa.table([failed["__unit"], failed["__row"], places, pa.nulls(len(failed), KEYS[3].type)], KEYS)
            rows, _ = live_rows(block)
            if len(rows):
                require_columns(rows, self.rule.columns, "deduplicate")
                yield keyed(rows, self.rule, *identity(block))
