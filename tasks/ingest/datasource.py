"""The read: a Ray Datasource that follows the reading order, a block a read task.

It knows nothing of formats (a source reads) and holds no list of units: a read task carries the order file's place and
its block's number, and reads its own units from there. Rows that earlier attempts staged are dropped here.
"""

import time
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from tasks import rows
from tasks.errors import explain
from tasks.ingest.ahead import ahead
from tasks.ingest.source import Source
from tasks.reading_order import read_block, read_summaries
from tasks.run_directory import Run
from tasks.storage_errors import worded
from tasks.supervisor import report_quarantined


class ManifestDatasource(Datasource):
    """Reads a run's pending units. The order file must be there when the dataset is run, not when it is built."""

    def __init__(self, source: Source, run: Run, schema: pa.Schema | None) -> None:
        super().__init__()
        self._source, self._run, self._schema = source, run, schema

    def get_name(self) -> str:
        return "Ingest"

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(size for _, size in read_summaries(self._run.order))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        return [
            ReadTask(
                partial(_read_block, self._source, self._run, self._schema, block),
                BlockMetadata(num_rows=count, size_bytes=size, exec_stats=None),
                per_task_row_limit=per_task_row_limit,
            )
            for block, (count, size) in enumerate(read_summaries(self._run.order))
        ]


def _read_block(source: Source, run: Run, schema: pa.Schema | None, block: int) -> Iterator[pa.Table]:
    return read_units(read_block(run.order, block), source, run, schema)


def read_units(units: pa.Table, source: Source, run: Run, schema: pa.Schema | None) -> Iterator[pa.Table]:
    """Blocks of the rows of `units` (schema `reading_order.PENDING`), timed and without what is settled."""
    settled = {unit: ranges for unit, ranges in _columns(units, "unit", "settled") if ranges}
    started = time.perf_counter()
    try:
        for table in _read(source, units, schema, run.partition):
            seconds = time.perf_counter() - started
            fresh = _without_settled(table, settled) if settled else table
            if len(fresh):
                live = np.flatnonzero(fresh["__state"].to_numpy() == rows.LIVE)
                fresh = rows.measured(fresh, live, "ingest", seconds, fresh.nbytes)
                report_quarantined(fresh, None, run)
                yield fresh
            started = time.perf_counter()
    except Exception as error:
        raise explain(error, "ingest") from error


def _read(source: Source, units: pa.Table, schema: pa.Schema | None, partition: str) -> Iterator[pa.Table]:
    with worded("read", source.place(partition)):
        blocks = source.read(units, schema)
        # Not from a local disk: its files are in memory, mostly, and a second thread would take the CPU from the first.
        yield from blocks if source.is_local(partition) else ahead(blocks)


def _columns(table: pa.Table, *names: str) -> Iterable[tuple]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _without_settled(table: pa.Table, settled: dict[int, list[int]]) -> pa.Table:
    """Only the rows outside the settled ranges of their unit; END rows stay."""
    units, numbers = table["__unit"].to_numpy(), table["__row"].to_numpy()
    fresh = np.ones(len(table), bool)
    for unit in np.unique(units):
        bounds = np.asarray(settled.get(int(unit), []))
        # Bounds ascend in pairs, so a number lies inside a range where an odd number of bounds are at or below it.
        inside = np.searchsorted(bounds, numbers, side="right") % 2 == 1
        fresh &= ~((units == unit) & inside)
    fresh |= table["__state"].to_numpy() == rows.END
    return table.filter(pa.array(fresh))
