"""Units to blocks of rows, timed, without those that earlier attempts staged.

It knows nothing of formats (a source reads), nor of Ray Data, whose import would hold up the processes that only read.
"""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import explain
from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import Run
from overnight.tasks.storage.error_translation import worded
from overnight.tasks.workers.supervisor import report_quarantined, tell
from overnight.tasks.workers.watchdog import Watchdog

T = TypeVar("T")
END = object()


def read_units(units: pa.Table, source: Source, run: Run, schema: pa.Schema | None) -> Iterator[pa.Table]:
    """Blocks of the rows of `units` (schema `reading_order.PENDING`), timed and without what is settled.

    The supervisor is told in the end how many of them are END rows, which progress does not count.
    """
    settled = {unit: ranges for unit, ranges in _columns(units, "unit", "settled") if ranges}
    started, ends = time.perf_counter(), 0
    try:
        for table in _guarded(source, units, schema, run):
            seconds = time.perf_counter() - started
            fresh = _without_settled(table, settled) if settled else table
            if len(fresh):
                states = fresh["__state"].to_numpy()
                live = np.flatnonzero(states == blocks.LIVE)
                ends += int(np.count_nonzero(states == blocks.END))
                fresh = blocks.measured(fresh, live, "ingest", seconds, fresh.nbytes)
                report_quarantined(fresh, None, run)
                yield fresh
            started = time.perf_counter()
        if ends:
            tell(run, "read", run.attempt, units["unit"][0].as_py(), ends)
    except Exception as error:
        raise explain(error, "ingest") from error


def _guarded(source: Source, units: pa.Table, schema: pa.Schema | None, run: Run) -> Iterator[pa.Table]:
    """The blocks of `units`; where a process died of these, one unit after another, without those that kill."""
    guard = Watchdog(run, "ingest", "ingest", 0)
    named = units.select(["unit", "first_row"]).rename_columns(["__unit", "__row"])
    with guard.at(named) as careful:
        try:
            if careful:
                yield from _carefully(source, units, schema, run, guard, named)
            else:
                yield from _read(source, units, schema, run.partition)
        except SystemExit as error:  # of a source's code: it means its unit, and no death would be noted
            told = RuntimeError(f"the code of the source called sys.exit({error})")
            guard.end_process(told)
            raise told from error


def _carefully(
    source: Source, units: pa.Table, schema: pa.Schema | None, run: Run, guard: Watchdog, named: pa.Table
) -> Iterator[pa.Table]:
    pieces, killers = guard.judged(named)
    for place, error in killers.items():
        yield from source.lost(units[place : place + 1].to_pylist()[0], error)
    for start, stop in pieces:
        with worded("read", source.place(run.partition)):
            tables = source.read(units[start:stop], schema)
            while True:
                with guard.in_hand(named, start, stop):
                    table = next(tables, None)
                if table is None:
                    break
                yield table  # what is done with it is not in this hand


def _read(source: Source, units: pa.Table, schema: pa.Schema | None, partition: str) -> Iterator[pa.Table]:
    with worded("read", source.place(partition)):
        tables = source.read(units, schema)
        # Not from a local disk: its files are in memory, mostly, and a second thread would take the CPU from the first.
        yield from tables if source.is_local(partition) else prefetch(tables)


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items; a thread makes the next while the caller has one. Raise what making one raises."""
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as thread:
        following = thread.submit(next, items, END)
        while (item := following.result()) is not END:
            following = thread.submit(next, items, END)
            yield item  # type: ignore[misc]


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
    fresh |= table["__state"].to_numpy() == blocks.END
    return table.filter(pa.array(fresh))
