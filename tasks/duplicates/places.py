"""The identity of a row: its `unit`, its source `row`, and its `place` among that row's output rows, from 0.

Manifest order is the order by `unit`, `row` and `place`.
"""

import numpy as np
import pyarrow as pa

PLACES = pa.schema([("unit", pa.int64()), ("row", pa.int64()), ("place", pa.int32())])
KEYS = PLACES.append(pa.field("key", pa.large_binary()))  # null: the row has no key, so it stays
FAILED = -1  # the `place` of a row that failed while keys were made


def places_of(units: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the place (int32) of each output row among those of its source row, which must follow each other."""
    if not len(units):
        return np.empty(0, np.int32)
    first = np.append(True, (units[1:] != units[:-1]) | (rows[1:] != rows[:-1]))
    starts = np.flatnonzero(first)
    return (np.arange(len(units)) - starts[np.cumsum(first) - 1]).astype(np.int32)


def _arrays(table: pa.Table) -> list[np.ndarray]:
    return [table[name].to_numpy() for name in PLACES.names]


def in_order(keys: pa.Table) -> pa.Table:
    """Return the table with its rows in manifest order."""
    unit, row, place = _arrays(keys)
    return keys.take(pa.array(np.lexsort((place, row, unit))))


def between(places: pa.Table, first: int, last: int) -> pa.Table:
    """Return the rows of the units `first` to `last`, both included, of a table in manifest order."""
    start, stop = np.searchsorted(places["unit"].to_numpy(), [first, last + 1])
    return places.slice(start, stop - start)


def found_in(places: pa.Table, units: np.ndarray, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return whether the table `places` contains each row, which its unit, source row and place (`numbers`) identify.

    No row may occur twice in the arrays or in the table.
    """
    columns = list(map(np.concatenate, zip(_arrays(places), (units, rows, numbers), strict=True)))
    order = np.lexsort(columns[::-1])
    same = np.ones(max(len(order) - 1, 0), bool)
    for column in columns:
        same &= column[order[1:]] == column[order[:-1]]
    is_twice = np.zeros(len(order), bool)
    is_twice[order[1:][same]] = is_twice[order[:-1][same]] = True
    return is_twice[len(places) :]
