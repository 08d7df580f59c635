"""Run operations on the rows of blocks: with isolation, a time limit, retries, captured output and a quarantine.

Every step and every model of a job runs through this file, in a run as in a preview.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from overnight.tasks.rows.apply import apply
from overnight.tasks.rows.result import Work
from overnight.tasks.state.run import Run
from overnight.tasks.workers import user_output
from overnight.tasks.workers.retry import with_retries
from overnight.tasks.workers.row_isolation import RowIsolation
from overnight.tasks.workers.supervisor import report_quarantined
from overnight.tasks.workers.watchdog import Watchdog


@dataclass(frozen=True)
class Operation:
    """A step or a model as work on rows. `source` names it in the run's log. `work_on` returns its work for a block."""

    source: str
    work_on: Callable[[pa.Table], Work]


class RowRunner:
    """Runs operations on blocks in this process, and quarantines the rows on which they fail.

    `stage` gets errors and seconds, and `label` names the operations in messages. `pace` is their seconds per row, if a
    sample showed it: it lengthens the time limit. The rows of a trial run again in the stream: so failed rows are not
    reported, and `errors` keeps what they raised.
    """

    def __init__(
        self,
        run: Run,
        stage: str,
        label: str,
        pace: float = 0.0,
        is_trial: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._run, self._stage, self._is_trial, self._clock = run, stage, is_trial, clock
        self.guard = Watchdog(run, stage, label, pace)
        self.errors: list[Exception] | None = [] if is_trial else None

    def run(self, block: pa.Table, operations: Sequence[Operation], isolation: RowIsolation) -> pa.Table:
        """Return `block` after all operations. Its rows run together, or one by one if `isolation` is on."""
        result = self.guard.run(block, lambda rows: self._run_all(rows, operations), isolation)
        if not self._is_trial:
            report_quarantined(result, block, self._run)
        return result

    def _run_all(self, rows: pa.Table, operations: Sequence[Operation]) -> pa.Table:
        for operation in operations:
            with user_output.collected(self._run, operation.source):
                work = with_retries(operation.work_on(rows), self._stage)
                rows = apply(rows, self._stage, work, self._clock, self.errors, self._run.keep_columns)
        return rows
