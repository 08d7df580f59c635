"""Drop duplicates after the last model: `write` compares the staged rows and does not publish the duplicates.

It compares only rows that would be published. So a failed or filtered row does not make another row a duplicate. The
decision is not stored, because another try reads the same parts and decides alike. Besides the keys, which
`duplicates/` limits, memory holds 20 bytes per duplicate and one byte per staged row.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.places import PLACES, between, found_in, places_of
from overnight.tasks.duplicates.rule import Rule, keyed
from overnight.tasks.errors import ContractError, did_you_mean
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges
from overnight.tasks.state.staged_parts import SOURCE_ROW, Record, read_part
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import published_schema, selections


def require_keys(rules: Sequence[Rule], names: Sequence[str]) -> None:
    """Raise `ContractError` if a rule of a `deduplicate` step compares a column that is not among the published."""
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
    """Find the duplicates by each rule in turn, and return records that mark them, the ranges and their number.

    A source row is filtered if all its output rows are duplicates. Raise `ContractError` for an unpublished column.
    """
    if not rules or not row_ranges.rows_in_state(merged, blocks.LIVE):
        return records, merged, 0
    require_keys(rules, published_schema(records).names)
    parts_by_number = {}
    for number, selection in enumerate(selections(records, merged)):
        if len(selection.ranges):
            parts_by_number[number] = _StagedPart(parts, selection.part, selection.ranges)
    count, filtered_ranges = 0, [row_ranges.RANGES.empty_table()]
    for rule in rules:
        duplicates = rule.duplicates(part.keys(rule) for part in parts_by_number.values())
        duplicate_rows = pa.concat_tables([PLACES.empty_table(), *duplicates])
        count += len(duplicate_rows)
        for part in parts_by_number.values():
            part.drop(duplicate_rows)
    records = list(records)
    for number, part in parts_by_number.items():
        if part.dropped.any():
            records[number] = replace(part.record, dropped=part.dropped)
            filtered_ranges.append(part.filtered())
    # Filtered ranges come first, so that they replace those of the parts. Their part becomes -1.
    ranges = row_ranges.merge([pa.concat_tables(filtered_ranges), *(record.ranges for record in records)])
    part_numbers = pa.array(ranges["part"].to_numpy() - 1)
    return records, ranges.set_column(ranges.column_names.index("part"), "part", part_numbers), count


class _StagedPart:
    """The rows of a part that would be published. `dropped` has a bool for each of its rows."""

    def __init__(self, parts: Location, record: Record, ranges: pa.Table) -> None:
        self.parts, self.record, self.ranges = parts, record, ranges
        self.dropped = np.zeros(record.rows, bool)

    def keys(self, rule: Rule) -> pa.Table:
        """Return the keys of the rows that stay so far."""
        units, rows, stays = self._identity()
        table = read_part(self.parts, self.record, rule.columns).filter(pa.array(stays))
        for name in {*rule.columns}.difference(table.column_names):  # only other parts have this column
            table = table.append_column(name, pa.nulls(len(table)))
        return keyed(table, rule, units[stays], rows[stays], places_of(units, rows)[stays])

    def drop(self, duplicates: pa.Table) -> None:
        """Drop the rows `duplicates` (schema `places.PLACES`, in manifest order)."""
        units, rows, stays = self._identity()
        if len(units):
            near = between(duplicates, int(units.min()), int(units.max()))
            self.dropped |= stays & found_in(near, units, rows, places_of(units, rows))

    def filtered(self) -> pa.Table:
        """Return the ranges of the source rows that lost a row as a duplicate, and keep none."""
        units, rows, stays = self._identity()
        starts = np.flatnonzero(places_of(units, rows) == 0)  # of each source row's output rows
        has_duplicate = np.logical_or.reduceat(self.dropped, starts)
        positions = starts[has_duplicate & ~np.logical_or.reduceat(stays, starts)]
        block = {"__unit": units[positions], "__row": rows[positions]}
        block["__state"] = np.full(len(positions), blocks.FILTERED)
        return row_ranges.ranges_of(pa.table(block))

    def _identity(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return unit and row of each row, and if it stays so far: two parts may have one row."""
        table = read_part(self.parts, self.record, SOURCE_ROW)
        units, rows = table["__unit"].to_numpy(), table["__row"].to_numpy()
        return units, rows, row_ranges.inside(units, rows, self.ranges) & ~self.dropped
