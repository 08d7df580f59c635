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
        """Yield the rows to drop (schema `PLACES`) in manifest order, from tables with schema `KEYS` in any order."""


def keyed(table: pa.Table, rule: Rule, units: np.ndarray, rows: np.ndarray, places: np.ndarray) -> pa.Table:
    """Return the rule's keys of a table's rows (schema `KEYS`); units, source rows and places identify the rows."""
    return pa.table([units, rows, places.astype(np.int32), rule.keys(table)], schema=KEYS)


def duplicates_in(table: pa.Table, rule: Rule) -> np.ndarray:
    """Return whether each row of a table is a duplicate of an earlier row of the table."""
    zeros = np.zeros(len(table), np.int64)
    is_duplicate = np.zeros(len(table), bool)
    for duplicates in rule.duplicates([keyed(table, rule, zeros, np.arange(len(table)), zeros)]):
        is_duplicate[duplicates["row"].to_numpy()] = True
    return is_duplicate
