"""The interface of a rule which rows are duplicates, and its use on the rows of one table."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.places import KEYS


class Rule(Protocol):
    """Rows are compared by keys, which are made of `columns` of one table at a time, by many processes."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def keys(self, table: pa.Table) -> pa.Array:
        """Return the key of each row (large_binary); null for a row that has nothing to compare."""

    def duplicates(self, keys: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows that go (schema `PLACES`, in manifest order) of tables with schema `KEYS`, in any order."""


def keyed(table: pa.Table, rule: Rule, units: np.ndarray, rows: np.ndarray, places: np.ndarray) -> pa.Table:
    """Return the rows of a table with their keys (schema `KEYS`). The arrays identify the rows."""
    return pa.table([units, rows, places.astype(np.int32), rule.keys(table)], schema=KEYS)


def duplicates_in(table: pa.Table, rule: Rule) -> np.ndarray:
    """Return for each row of a table whether it is a duplicate of an earlier one."""
    nothing = np.zeros(len(table), np.int64)
    gone = np.zeros(len(table), bool)
    for found in rule.duplicates([keyed(table, rule, nothing, np.arange(len(table)), nothing)]):
        gone[found["row"].to_numpy()] = True
    return gone
