"""The interface of a rule that finds duplicate rows, and functions that apply a rule to one table."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.places import KEYS


class Rule(Protocol):
    """A rule that finds the duplicate rows of a partition.

    Many processes call `keys`, each for one table that has the `columns`. Then one process compares all keys by
    `duplicates`.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...

    def keys(self, table: pa.Table) -> pa.Array:
        """Return the key of each row (large_binary); null for a row without a value to compare, which stays."""

    def duplicates(self, keys: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows to drop, as tables with schema `PLACES` in manifest order.

        `keys` are tables with schema `KEYS`, whose rows may be in any order.
        """


def keyed(table: pa.Table, rule: Rule, units: np.ndarray, rows: np.ndarray, places: np.ndarray) -> pa.Table:
    """Return the identities and keys of a table's rows, as a table with schema `KEYS`.

    `units`, `rows` and `places` have one value per row.
    """
    return pa.table([units, rows, places.astype(np.int32), rule.keys(table)], schema=KEYS)


def duplicates_in(table: pa.Table, rule: Rule) -> np.ndarray:
    """Return a bool for each row of a table: True if it is a duplicate of an earlier row of the table."""
    nothing = np.zeros(len(table), np.int64)
    gone = np.zeros(len(table), bool)
    for found in rule.duplicates([keyed(table, rule, nothing, np.arange(len(table)), nothing)]):
        gone[found["row"].to_numpy()] = True
    return gone
