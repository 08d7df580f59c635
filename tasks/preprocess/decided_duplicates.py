"""A `deduplicate` in the stream: a first reading of the partition decides by a key of each row, the second drops rows.

So a model sees no duplicate. The decision is one file of the generation. `tasks/duplicates/` has the comparison.
"""

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.duplicates import decision
from overnight.tasks.duplicates.places import FAILED, KEYS, PLACES, places_of
from overnight.tasks.duplicates.rule import Rule, keyed
from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.engine.stream import Barrier
from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.input_columns import require_columns
from overnight.tasks.rows.blocks import QUARANTINED, live_rows
from overnight.tasks.rows.result import Outcome, Work
from overnight.tasks.state import lease
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.workers.row_isolation import RowIsolation

FAILED_BEFORE = (
    "deduplicate: this row failed when the rows were read for their keys, and not now. It has no key, so it may repeat "
    "another row. The log of the run has the first error."
)


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


@dataclass(frozen=True)
class Decision(Barrier):
    """The first reading decides which rows are duplicates, and writes a file. In the stream, these rows are dropped.

    `number` counts the job's `deduplicate` steps from 0, and names the file.
    """

    stage: Keys
    number: int

    def is_passed(self, run: Run) -> bool:
        return self._file(run).exists()

    def take(self, run: Run, tables: Iterable[pa.Table]) -> str:
        start, rows = time.perf_counter(), _Rows()
        duplicates = self.stage.rule.duplicates(rows.without_failures(tables))
        first = next(duplicates, PLACES.empty_table())  # the rows are read now, before the file begins
        lease.check(run.ledger, run.token)
        failures = pa.concat_tables(rows.failures)
        count = decision.write(self._file(run), itertools.chain([first], duplicates), failures)
        seconds = time.perf_counter() - start
        return f"deduplicate: {count:,} of {rows.count:,} rows are duplicates; the first reading took {seconds:,.1f} s"

    def work_on(self, block: pa.Table, run: Run) -> Work:
        """Return the work that filters the duplicates.

        A row that failed in the first reading fails again, because no decision covers it.
        """
        is_duplicate, failures = decision.judged(self._file(run), *_identity(block))
        errors = {row: RowError(FAILED_BEFORE) for row in np.flatnonzero(failures).tolist()}
        return lambda _: Outcome(keep=~is_duplicate, failed=errors)

    def _file(self, run: Run) -> Location:
        return run.duplicates / str(self.number)


class _Rows:
    """Counts the rows of a first reading, and keeps the identities of the failed ones."""

    def __init__(self) -> None:
        self.count = 0
        self.failures = [PLACES.empty_table()]

    def without_failures(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            keys = table.cast(KEYS)
            has_failed = pc.equal(keys["place"], FAILED)
            self.failures.append(keys.filter(has_failed).select(PLACES.names))
            keys = keys.filter(pc.invert(has_failed))
            self.count += len(keys)
            yield keys
