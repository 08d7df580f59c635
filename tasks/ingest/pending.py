"""What is left to read: units that staged parts do not settle whole, and what of them is settled."""

import numpy as np
import pyarrow as pa

from tasks import settled
from tasks.manifest import read_units
from tasks.reading_order import PENDING
from tasks.storage import Location


def pending_units(manifest: Location, counts: pa.Table, merged: pa.Table) -> pa.Table:
    """The units with rows that no staged part settles (schema `PENDING`), in manifest order.

    `counts` has the columns `rows` and `first_row` of all units, `merged` is of `settled.merge`. Of the units that are
    settled whole, no more is read than that.
    """
    expected = settled.rows_of_units(counts, merged)
    unit, start, stop = (settled.ranges_only(merged)[name].to_numpy() for name in ("unit", "start", "stop"))
    done = np.zeros(len(counts), np.int64)
    np.add.at(done, unit, stop - start)
    is_left = (expected < 0) | (done < expected)
    left, of_left = np.flatnonzero(is_left), is_left[unit]
    skipped = leftovers(left, unit[of_left], start[of_left], stop[of_left])
    return read_units(manifest, left).append_column("settled", skipped).cast(PENDING)


def leftovers(units: np.ndarray, unit: np.ndarray, start: np.ndarray, stop: np.ndarray) -> pa.Array:
    """For each of `units`, ascending, its ranges as `[start, stop, start, stop, ...]`; null without any.

    Ranges come sorted by unit and start, each of one of `units`; those that meet become one.
    """
    first = np.ones(len(unit), bool)
    first[1:] = (unit[1:] != unit[:-1]) | (start[1:] != stop[:-1])
    last = np.append(first[1:], True)[: len(unit)]
    bounds = np.column_stack([start[first], stop[last]]).ravel()
    counts = np.bincount(np.searchsorted(units, unit[first]), minlength=len(units)) * 2
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.LargeListArray.from_arrays(offsets, bounds, mask=pa.array(counts == 0)).cast(pa.list_(pa.int64()))
