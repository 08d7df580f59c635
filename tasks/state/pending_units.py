"""Finds the units that are left to read, because staged parts do not settle all of their rows."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from overnight.tasks.rows import blocks
from overnight.tasks.state import read_plan, row_ranges
from overnight.tasks.state.manifest import COUNTS, iterate_units, read_manifest
from overnight.tasks.state.read_plan import PENDING, stream_order
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import read_records
from overnight.tasks.storage.location import Location


def plan_read(run: Run) -> None:
    """Write the order file of the run's attempt: the list of units with rows that no staged part settles."""
    counts, _ = read_manifest(run.manifest, COUNTS)
    write_pending(run.order, run.manifest, counts, settled(run))


def settled(run: Run) -> pa.Table:
    """Return the ranges of rows that the staged parts of the run's generation settle, as `row_ranges.merge` does."""
    return row_ranges.merge([record.ranges for record in read_records(run.parts)])


def write_pending(order: Location, manifest: Location, counts: pa.Table, merged: pa.Table) -> int:
    """Write the units that are left to read to the file `order`, in the order of the manifest. Return their number.

    `counts` has the columns `COUNTS` of all units, and `merged` the settled ranges (`row_ranges.merge`).
    """
    pending, ranges = units_left(counts, merged)
    sizes, rows = counts["size"].to_numpy(), counts["rows"].combine_chunks()
    if len(pending) < len(counts):
        sizes, rows = sizes[pending], rows.take(pa.array(pending))
    remaining = None
    if not rows.null_count:
        remaining = read_plan.rows_in(ranges)
        np.subtract(rows.to_numpy(), remaining, out=remaining)
    states = (blocks.LIVE, blocks.FILTERED, blocks.QUARANTINED)
    live, filtered, quarantined = (row_ranges.rows_in_state(merged, state) for state in states)
    earlier = read_plan.EarlierRows(live + filtered + quarantined, quarantined)
    tables = pending_tables(manifest, pending, ranges)
    stream_order(order, tables, read_plan.pack(sizes), sizes, remaining, earlier)
    # Otherwise the worker keeps the memory for its next task.
    pa.default_memory_pool().release_unused()
    return len(pending)


def units_left(counts: pa.Table, merged: pa.Table) -> tuple[np.ndarray, pa.Array]:
    """Return the numbers of the units with unsettled rows, and the settled ranges of each, `[start, stop, ...]`."""
    rows = row_ranges.rows_of_units(counts, merged)
    unit, start, stop = row_ranges.columns_of(row_ranges.ranges_only(merged), *row_ranges.BOUNDS)
    settled_rows = np.zeros(len(counts), np.int64)
    np.add.at(settled_rows, unit, stop - start)
    is_pending = (rows < 0) | (settled_rows < rows)
    pending, of_pending = np.flatnonzero(is_pending), is_pending[unit]
    return pending, unfinished_units(pending, unit[of_pending], start[of_pending], stop[of_pending])


def pending_tables(manifest: Location, pending: np.ndarray, skipped: pa.Array) -> Iterator[pa.Table]:
    """Yield tables of the units of `units_left` (schema `read_plan.PENDING`), in the order of the manifest."""
    count = 0
    for units in iterate_units(manifest, pending):
        yield units.append_column("settled", skipped[count : count + len(units)]).cast(PENDING)
        count += len(units)


def unfinished_units(units: np.ndarray, unit: np.ndarray, start: np.ndarray, stop: np.ndarray) -> pa.Array:
    """Return for each of the ascending `units` its sorted ranges of rows as one list. Adjacent ranges become one."""
    if not len(unit):
        return pa.nulls(len(units), pa.list_(pa.int64()))
    first = np.ones(len(unit), bool)
    first[1:] = (unit[1:] != unit[:-1]) | (start[1:] != stop[:-1])
    last = np.append(first[1:], True)[: len(unit)]
    bounds = np.column_stack([start[first], stop[last]]).ravel()
    counts = np.bincount(np.searchsorted(units, unit[first]), minlength=len(units)) * 2
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.LargeListArray.from_arrays(offsets, bounds, mask=pa.array(counts == 0)).cast(pa.list_(pa.int64()))
