"""The interface of a rule that finds duplicate rows, and functions that apply a rule to one table."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.places import KEYS


class Rule(Protocol):
    """A rule that finds the duplicate rows of a partition by the columns `columns`.

    Many processes call `keys`, each for one table that has these columns. Then one process calls `duplicates` to
    compare all keys.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...

    def keys(self, table: pa.Table) -> pa.Array:
        """Return the key of each row (large_binary); null for a row without a value to compare, which stays."""

    def duplicates(self, keys: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows to drop, as tables with schema `PLACES` in manifest order.

        `keys` are tables with schema `KEYS`, which have the place and the key of each row, in any order.
        """


def keyed(table: pa.Table, rule: Rule, units: np.ndarray, rows: np.ndarray, places: np.ndarray) -> pa.Table:
    """Return the identities and the rule's keys of a table's rows, as a table with schema `KEYS`.

    `units`, `rows` and `places` identify each row: its unit, its source row, and its place among that row's output
    rows.
    """
    return pa.table([units, rows, places.astype(np.int32), rule.keys(table)], schema=KEYS)


def duplicates_in(table: pa.Table, rule: Rule) -> np.ndarray:
    """Return a bool for each row of a table: True if it is a duplicate of an earlier row of the table."""
    nothing = np.zeros(len(table), np.int64)
    gone = np.zeros(len(table), bool)
    for found in rule.duplicates([keyed(table, rule, nothing, np.arange(len(table)), nothing)]):
        gone[found["row"].to_numpy()] = True
    return gone
