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

    All rows of the other units are settled. Memory holds the counts of all units, and a row group of the manifest.

    Args:
        order: The order file: the list of units that this attempt reads (`tasks/state/read_plan.py`).
        counts: The columns `rows`, `first_row` and `size` of all units.
        merged: The settled ranges of rows, as `row_ranges.merge` returns them.
    """
    left, skipped = units_left(counts, merged)
    sizes, rows_left = counts["size"].to_numpy(), counts["rows"].combine_chunks()
    if len(left) < len(counts):
        sizes, rows_left = sizes[left], rows_left.take(pa.array(left))
    settled_rows = read_plan.rows_in(skipped)
    known = None if rows_left.null_count else np.subtract(rows_left.to_numpy(), settled_rows, out=settled_rows)
    quarantined = row_ranges.rows_in_state(merged, blocks.QUARANTINED)
    tables = pending_tables(manifest, left, skipped)
    stream_order(order, tables, read_plan.pack(sizes), sizes, known, quarantined)
    pa.default_memory_pool().release_unused()  # otherwise the worker keeps the memory for its next task
    return len(left)


def units_left(counts: pa.Table, merged: pa.Table) -> tuple[np.ndarray, pa.Array]:
    """Return the numbers of the units with unsettled rows (int64, ascending), and the settled ranges of each of them.

    The ranges of a unit are a list `[start, stop, start, stop, ...]`, or null if no row of it is settled. `counts` has
    the columns `rows`, `first_row` and `size` of all units. `merged` has the settled ranges, as `row_ranges.merge`
    returns them.
    """
    expected = row_ranges.rows_of_units(counts, merged)
    unit, start, stop = (row_ranges.ranges_only(merged)[name].to_numpy() for name in ("unit", "start", "stop"))
    done = np.zeros(len(counts), np.int64)
    np.add.at(done, unit, stop - start)
    is_left = (expected < 0) | (done < expected)
    left, of_left = np.flatnonzero(is_left), is_left[unit]
    return left, unfinished_units(left, unit[of_left], start[of_left], stop[of_left])


def pending_tables(manifest: Location, left: np.ndarray, skipped: pa.Array) -> Iterator[pa.Table]:
    """Yield tables of the units that are left to read (schema `read_plan.PENDING`), in the order of the manifest.

    `left` has the numbers of these units, and `skipped` the settled ranges of each, as `units_left` returns both.
    """
    place = 0
    for units in iterate_units(manifest, left):
        yield units.append_column("settled", skipped[place : place + len(units)]).cast(PENDING)
        place += len(units)


def unfinished_units(units: np.ndarray, unit: np.ndarray, start: np.ndarray, stop: np.ndarray) -> pa.Array:
    """Return for each of `units` its ranges of rows as a list `[start, stop, start, stop, ...]`; null without a range.

    `units` has the numbers of the units, ascending. Range i has the rows start[i] <= row < stop[i] of the unit unit[i].
    The ranges are sorted by unit and start, and each is of one of `units`. Adjacent ranges become one.
    """
    if not len(unit):
        return pa.nulls(len(units), pa.list_(pa.int64()))
    first = np.ones(len(unit), bool)
    first[1:] = (unit[1:] != unit[:-1]) | (start[1:] != stop[:-1])
    last = np.append(first[1:], True)[: len(unit)]
    bounds = np.column_stack([start[first], stop[last]]).ravel()
    counts = np.bincount(np.searchsorted(units, unit[first]), minlength=len(units)) * 2
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.LargeListArray.from_arrays(offsets, bounds, mask=pa.array(counts == 0)).cast(pa.list_(pa.int64()))
