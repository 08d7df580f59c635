"""Drop duplicates after the last model: `write` compares the staged rows and does not publish the duplicates.

It compares only rows that would be published. So a failed or filtered row does not make another row a duplicate. The
decision is not stored, because another try reads the same parts and decides alike. Besides the keys, which
`duplicates/` limits, memory holds 20 bytes per duplicate and one byte per staged row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.places import PLACES, between, found_in, places_of
from overnight.tasks.duplicates.rule import Rule, keyed
from overnight.tasks.errors import ContractError, did_you_mean
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.staged_parts import Record, read_part
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import published_schema


def require_keys(rules: Sequence[Rule], names: Sequence[str]) -> None:
    """Raise `ContractError` if a rule of a `deduplicate` step compares a column that is not published.

    `names` are the published columns.
    """
    for rule in rules:
        for name in rule.columns:
            if name not in names:
                raise ContractError(
                    f"deduplicate: expected a published column {name!r}, found {', '.join(names)}"
                    f"{did_you_mean(name, names)}. Behind the last model rows are compared by what is published. Name "
                    "a heavy column in sink.keep_columns, or put the step before the first model.",
                    "write",
                )


def drop_duplicates(
    parts: Location, records: list[Record], merged: pa.Table, rules: Sequence[Rule]
) -> tuple[list[Record], pa.Table, int]:
    """Find the duplicates by each rule in turn, and return the marked records, the ranges and the number of duplicates.

    In the returned records, `dropped` marks the duplicates. In the returned ranges, a source row is filtered if all its
    output rows are duplicates. Raise `ContractError` if a rule compares a column that is not published.

    Args:
        parts: The directory of the staged parts.
        records: The footers of these parts.
        merged: The ranges of source rows that the parts settle, from `row_ranges.merge`.
        rules: The rules of the `deduplicate` steps after the last model.
    """
    if not rules or not row_ranges.rows_in_state(merged, blocks.LIVE):
        return records, merged, 0
    require_keys(rules, published_schema(records).names)
    rows = _StagedRows(parts, records, merged)
    for rule in rules:
        rows.drop(pa.concat_tables([PLACES.empty_table(), *rule.duplicates(rows.keys(rule))]))
    ranges = row_ranges.merge([rows.filtered(), *(record.ranges for record in records)])
    part = pa.array(ranges["part"].to_numpy() - 1)  # the filtered rows are in no part
    ranges = ranges.set_column(ranges.column_names.index("part"), "part", part)
    marked = [replace(record, dropped=rows.dropped[number]) for number, record in enumerate(records)]
    return marked, ranges, rows.count


class _StagedRows:
    """The staged rows that would be published. `dropped` has a bool for each row of each part."""

    def __init__(self, parts: Location, records: list[Record], merged: pa.Table) -> None:
        self._parts, self._records = parts, records
        live = merged.filter(pa.array(merged["state"].to_numpy() == blocks.LIVE)).sort_by("part")
        bounds = np.searchsorted(live["part"].to_numpy(), np.arange(len(records) + 1))
        self._ranges = [live[start:stop] for start, stop in pairwise(bounds.tolist())]
        self.dropped = [np.zeros(record.rows, bool) for record in records]
        self.count = 0

    def keys(self, rule: Rule) -> Iterator[pa.Table]:
        """Yield the keys of the rows that stay so far, one part at a time."""
        for number, ranges in enumerate(self._ranges):
            if len(ranges):
                units, rows, stays = self._identity(number)
                table = self._read(number, rule.columns).filter(pa.array(stays))
                for name in {*rule.columns} - {*table.column_names}:  # only other parts have this column
                    table = table.append_column(name, pa.nulls(len(table)))
                yield keyed(table, rule, units[stays], rows[stays], places_of(units, rows)[stays])

    def drop(self, gone: pa.Table) -> None:
        """Drop the rows `gone` (schema `PLACES`, in manifest order)."""
        self.count += len(gone)
        for number, ranges in enumerate(self._ranges):
            if len(ranges):
                units, rows, stays = self._identity(number)
                near = between(gone, int(units.min()), int(units.max()))
                self.dropped[number] |= stays & found_in(near, units, rows, places_of(units, rows))

    def filtered(self) -> pa.Table:
        """Return the ranges of the source rows without a row that stays (schema `row_ranges.RANGES`)."""
        found = [row_ranges.RANGES.empty_table()]
        for number, dropped in enumerate(self.dropped):
            if not dropped.any():
                continue
            units, rows, stays = self._identity(number)
            first = places_of(units, rows) == 0
            source = np.cumsum(first) - 1
            left, gone = (np.bincount(source, weights=each, minlength=first.sum()) for each in (stays, dropped))
            empty = np.flatnonzero(first)[(left == 0) & (gone > 0)]
            block = {"__unit": units[empty], "__row": rows[empty], "__state": np.full(len(empty), blocks.FILTERED)}
            found.append(row_ranges.ranges_of(pa.table(block)))
        return pa.concat_tables(found)

    def _identity(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return unit and row of each row of a part, and whether it stays so far: another part may have it."""
        table = self._read(number, ("__unit", "__row"))
        units, rows = table["__unit"].to_numpy(), table["__row"].to_numpy()
        return units, rows, row_ranges.inside(units, rows, self._ranges[number]) & ~self.dropped[number]

    def _read(self, number: int, columns: Sequence[str]) -> pa.Table:
        return read_part(self._parts, self._records[number], columns)
