"""A datasink of Ray Data that writes the stream's blocks as parts, the checkpoints of the rows that they settle.

One call writes one part, with all output rows of the source rows that it settles. Ray may call again for the same
blocks after a worker died. The part then has the same name, so that an equal one replaces it. Readers do not see parts.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ray.data import Datasink
from ray.data.block import Block
from ray.data.datasource import WriteResult

from overnight.tasks.errors import STREAM_STAGES, ContractError
from overnight.tasks.rows.blocks import (
    END,
    LIVE,
    MEASURED_STAGES,
    left_out,
)
from overnight.tasks.rows.padding import without_padding
from overnight.tasks.rows.rebatch import joined
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.write.checks.column_statistics import describe
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.stream.rows_to_publish import quarantine_details, rows_to_publish

LARGE_BYTES = 16 * 2**20  # of a part in memory: its file may be published as it is


@dataclass
class Staged:
    """The seconds that staging took, and how many source rows reached each stage of the stream.

    In `rows`, the count of `write` is that of the written rows.
    """

    seconds: float = 0.0
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAM_STAGES, 0))


class StagingDatasink(Datasink[Staged]):
    """Writes the stream's blocks as parts of at least `rows_per_part` rows, except the last.

    Rows that `sink` refuses are quarantined. `compression` is that of the parts. After the stream, `staged` has the
    sums of all calls of `write`.
    """

    def __init__(self, run: Run, compression: str, rows_per_part: int, sink: Sink) -> None:
        self._run, self._compression, self._rows_per_part, self._sink = run, compression, rows_per_part, sink
        self.staged = Staged()

    @property
    def min_rows_per_write(self) -> int:
        return self._rows_per_part

    def on_write_complete(self, write_result: WriteResult[Staged]) -> None:
        each = write_result.write_returns
        rows = {stage: sum(one.rows[stage] for one in each) for stage in STREAM_STAGES}
        self.staged = Staged(sum(one.seconds for one in each), rows)

    def write(self, blocks: Iterable[Block], ctx: object) -> Staged:
        started = time.perf_counter()
        counts = self._write(blocks, f"{self._run.attempt}-{ctx.task_idx:06d}")  # type: ignore[attr-defined]
        supervisor.report_storage_problems(self._run, "write")
        return Staged(time.perf_counter() - started, counts)

    def _write(self, blocks: Iterable[Block], part: str) -> dict[str, int]:
        """Return the number of source rows by the stage that they reached."""
        try:
            block = without_padding(joined(blocks)).combine_chunks()
        except pa.ArrowException as error:
            raise ContractError(f"rows of one column differ in type: {error}. Return one type.", "write") from error
        if not len(block):
            return Staged().rows
        before = block
        table, places, block = rows_to_publish(block, self._run, self._sink)
        supervisor.report_quarantined(block, before, self._run)
        states = block["__state"].to_numpy()
        columns = describe(table) if table.nbytes >= LARGE_BYTES else None
        for name in ("__unit", "__row"):
            table = table.append_column(name, block[name].take(places))
        measures = _measures(block, table)
        staged_parts.write_part(
            self._run.parts,
            part,
            table,
            quarantine_details(block),
            row_ranges.ranges_of(block),
            measures,
            self._compression,
            left_out(block),
            columns,
        )
        reached = {stage: int(measures[stage]["rows"]) for stage in MEASURED_STAGES}
        return reached | {"write": int(np.count_nonzero(states == LIVE))}


def _measures(block: pa.Table, table: pa.Table) -> staged_parts.Measures:
    reached = {"ingest": pa.array(block["__state"].to_numpy() != END)}
    measures = {}
    for stage in MEASURED_STAGES:
        seconds, size = block[f"__{stage}_seconds"], block[f"__{stage}_bytes"]
        count = pc.sum(reached[stage]).as_py() if stage in reached else len(block) - seconds.null_count
        measures[stage] = {
            "seconds": float(np.nansum(seconds.to_numpy())),
            "rows": int(count),
            "bytes": int(np.nansum(size.to_numpy())),
        }
    measures["write"] = {"seconds": 0.0, "rows": len(table), "bytes": table.nbytes}
    return measures
