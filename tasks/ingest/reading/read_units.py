"""Reads units into blocks of rows, without rows that earlier attempts staged, and measures the time.

This file does not use file formats, because a source reads them. It does not import Ray Data either, because the import
would delay processes that only read.
"""

import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from overnight.tasks.config.memory_bound import bounded, shortage
from overnight.tasks.engine.stage import Stage
from overnight.tasks.errors import explain
from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import Run
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.workers.row_isolation import RowIsolation
from overnight.tasks.workers.supervisor import UnitsRead, emit, report_quarantined, report_storage_problems
from overnight.tasks.workers.watchdog import Watchdog

T = TypeVar("T")
END = object()


@dataclass(frozen=True)
class Read(Stage):
    """The read of a source. `schema` has the columns and types of the rows; None if each file determines its own."""

    source: Source
    schema: pa.Schema | None = None

    label = counts_as = "ingest"

    def load(self, run: Run) -> "LoadedRead":
        return LoadedRead(self, run)


@dataclass(frozen=True)
class LoadedRead:
    stage: Read
    run: Run

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None = None) -> Iterator[pa.Table]:
        """Yield blocks of the rows of `blocks`, tables of units; the supervisor decides on isolation."""
        for units in blocks:
            yield from read_units(units, self.stage.source, self.run, self.stage.schema)


def read_units(units: pa.Table, source: Source, run: Run, schema: pa.Schema | None) -> Iterator[pa.Table]:
    """Yield blocks of `units` (schema `read_plan.PENDING`), without settled rows. Report the END rows at the end."""
    ranges_by_unit = dict(zip(units["unit"].to_pylist(), units["settled"].to_pylist(), strict=True))
    ranges_of = {unit: ranges for unit, ranges in ranges_by_unit.items() if ranges}
    begin, ends = time.perf_counter(), 0
    try:
        for block in _guarded(source, units, schema, run):
            seconds = time.perf_counter() - begin
            fresh = _without_settled(block, ranges_of) if ranges_of else block
            if len(fresh):
                states = fresh["__state"].to_numpy()
                live = np.flatnonzero(states == blocks.LIVE)
                ends += int(np.count_nonzero(states == blocks.END))
                fresh = blocks.measured(fresh, live, "ingest", seconds, fresh.nbytes)
                report_quarantined(fresh, None, run)
                yield fresh
            begin = time.perf_counter()
        if ends:
            emit(run, UnitsRead(run.attempt, units["unit"][0].as_py(), ends))
        report_storage_problems(run, "ingest")
    except Exception as error:
        raise explain(error, "ingest") from error


def _guarded(source: Source, units: pa.Table, schema: pa.Schema | None, run: Run) -> Iterator[pa.Table]:
    """Yield blocks of `units`. After the death of a process, read unit by unit, without units that killed processes."""
    guard = Watchdog(run, "ingest", "ingest", 0)
    rows = units.select(["unit", "first_row"]).rename_columns(["__unit", "__row"])
    with guard.at(rows) as isolation:
        try:
            if isolation.is_on:
                yield from _one_by_one(source, units, schema, run, guard, rows)
            else:
                yield from _read(source, units, schema, run.partition)
        except (SystemExit, MemoryError) as error:  # without this, its unit would get no record of a death
            if isinstance(error, MemoryError):
                death = RuntimeError(shortage(error))
            else:
                death = RuntimeError(f"the code of the source called sys.exit({error})")
            guard.end_process(death)
            raise death from error


def _one_by_one(
    source: Source, units: pa.Table, schema: pa.Schema | None, run: Run, guard: Watchdog, rows: pa.Table
) -> Iterator[pa.Table]:
    pieces, killers = guard.judged(rows)
    for position, error in killers.items():
        yield from source.lost(units[position : position + 1].to_pylist()[0], error)
    for start, stop in pieces:
        with translate_storage_errors("read", source.place(run.partition)):
            tables = source.rows(units[start:stop], schema)
            while True:
                with guard.rows_reported(rows, start, stop):
                    table = next(tables, None)
                if table is None:
                    break
                yield table  # outside of `rows_reported`: the work of the consumer does not count


def _read(source: Source, units: pa.Table, schema: pa.Schema | None, partition: str) -> Iterator[pa.Table]:
    with translate_storage_errors("read", source.place(partition)):
        tables = source.rows(units, schema)
        # Not for a local disk: its files are mostly in memory, and a second thread would take the CPU from the first.
        yield from tables if source.is_local(partition) else prefetch(tables)


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items unchanged. A second thread makes the next item while the caller uses one."""
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as thread:
        following = thread.submit(next, items, END)
        while (item := following.result()) is not END:
            following = thread.submit(next, items, END)
            with bounded(math.inf):
                yield item  # type: ignore[misc]


def _without_settled(table: pa.Table, ranges_of: dict[int, list[int]]) -> pa.Table:
    """Return only the rows outside the settled ranges of their units, and all END rows."""
    units, numbers = table["__unit"].to_numpy(), table["__row"].to_numpy()
    is_fresh = np.ones(len(table), bool)
    for unit in np.unique(units):
        bounds = np.asarray(ranges_of.get(int(unit), []))
        # Bounds ascend in pairs: a number is inside a range if an odd number of bounds are at or below it.
        is_inside = np.searchsorted(bounds, numbers, side="right") % 2 == 1
        is_fresh &= ~((units == unit) & is_inside)
    is_fresh |= table["__state"].to_numpy() == blocks.END
    return table.filter(pa.array(is_fresh))
