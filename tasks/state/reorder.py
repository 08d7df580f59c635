"""Writes a run's order file again in another order. Memory holds about a million complete units at a time.

Consecutive units of the new order are scattered over the whole file. So each pass reads the whole file, and ten million
units take ten passes.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from overnight.tasks.state import read_plan
from overnight.tasks.storage.location import Location

UNITS_AT_ONCE = 2**20


class Order(Protocol):
    """An order of units."""

    def order(self, pending: pa.Table) -> np.ndarray:
        """Return the position in `pending` (columns `path` and `size`) of each unit, in the order of reading."""


def reorder(place: Location, wanted: Order) -> bool:
    """Rewrite the list of units that a run reads, the order file at `place`, in the order `wanted`.

    Return True if the file has the number of rows of every unit, and each number is 1. Then the order of the units is
    also the order of the rows.
    """
    order = wanted.order(read_plan.read_order(place, ["path", "size"]))
    pending = read_plan.read_order(place, ["rows", "settled"])
    rows_left, one_row_each = None, False
    if not pending["rows"].null_count:
        rows_left = pending["rows"].to_numpy()
        one_row_each = bool((rows_left == 1).all())
        rows_left = (rows_left - read_plan.rows_in(pending["settled"].combine_chunks()))[order]
    del pending
    sizes = read_plan.read_order(place, ["size"])["size"].to_numpy()[order]
    quarantined = read_plan.read_quarantined(place)
    read_plan.stream_order(place, _in_order(place, order), read_plan.pack(sizes), sizes, rows_left, quarantined)
    pa.default_memory_pool().release_unused()  # otherwise the worker keeps the memory for its next task
    return one_row_each


def _in_order(place: Location, order: np.ndarray) -> Iterator[pa.Table]:
    for start in range(0, len(order), UNITS_AT_ONCE):
        places = order[start : start + UNITS_AT_ONCE]
        ascending = np.argsort(places)
        back = np.empty_like(ascending)
        back[ascending] = np.arange(len(ascending))
        yield read_plan.read_places(place, places[ascending]).take(back)
