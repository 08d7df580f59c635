"""The record of the rows that a staged part settles, in the part's own Parquet footer.

It is a table with one range per row. `unit`, `start` and `stop` are the rows start <= n < stop of the unit's file.
`state` is `blocks.LIVE` for written rows, `FILTERED` or `QUARANTINED`. If only reading showed the number of rows of a
unit, one range of state `END` has that number as `stop`. There is no second record that could disagree with the data.
"""

import base64
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows import blocks

KEY = b"overnight.settled"
MOST_RUNS = 1_000  # of a part's rows, or twice as many as it has ranges
RANGES_AT_ONCE = 2**20  # limits the memory for counting besides the ranges themselves
RANGES = pa.schema([("unit", pa.int64()), ("start", pa.int64()), ("stop", pa.int64()), ("state", pa.int8())])
BOUNDS = ("unit", "start", "stop")


def columns_of(table: pa.Table, *names: str) -> list[np.ndarray]:
    return [table[name].to_numpy() for name in names]


def ranges_of(block: pa.Table) -> pa.Table:
    """Return the ranges of the rows of a block: consecutive rows of one unit with the same state, sorted.

    A repeated row counts once. The ranges of state `blocks.END` come last, one per END row of the block.
    """
    units, numbers, states = columns_of(block, "__unit", "__row", "__state")
    is_end = states == blocks.END
    order = np.lexsort((numbers[~is_end], units[~is_end]))
    unit, number, state = units[~is_end][order], numbers[~is_end][order], states[~is_end][order]
    is_new = np.ones(len(unit), bool)
    is_new[1:] = (unit[1:] != unit[:-1]) | (number[1:] != number[:-1])
    runs = _runs(unit[is_new], number[is_new], state[is_new])
    ends = [units[is_end], np.zeros(is_end.sum(), np.int64), numbers[is_end], states[is_end]]
    return pa.concat_tables([runs, pa.table(ends, schema=RANGES)])


def _runs(units: np.ndarray, numbers: np.ndarray, states: np.ndarray) -> pa.Table:
    """Return rows as ranges, in their order: a range has consecutive rows of one unit with the same state."""
    if not len(units):
        return RANGES.empty_table()
    breaks = (units[1:] != units[:-1]) | (numbers[1:] != numbers[:-1] + 1) | (states[1:] != states[:-1])
    starts = np.flatnonzero(np.append(True, breaks))
    stops = np.append(starts[1:], len(units)) - 1
    return pa.table([units[starts], numbers[starts], numbers[stops] + 1, states[starts]], schema=RANGES)


def in_row_order(units: np.ndarray, numbers: np.ndarray, ranges: pa.Table) -> pa.Table | None:
    """Return `ranges` in the order of a part's rows, so that `rows_of` gives these rows; None if that is impossible."""
    is_live = ranges["state"].to_numpy() == blocks.LIVE
    live = ranges.filter(pa.array(is_live))
    runs = _runs(units, numbers, np.full(len(units), blocks.LIVE, np.int8))
    if len(runs) > max(2 * len(live), MOST_RUNS) or not _joined(runs).equals(_joined(live)):
        return None
    return pa.concat_tables([runs, ranges.filter(pa.array(~is_live))])


def _joined(ranges: pa.Table) -> pa.Table:
    """Return ranges of one state sorted, with those joined that continue each other."""
    columns = dict(zip(RANGES.names, columns_of(ranges, *RANGES.names), strict=True))
    _sort(columns)
    unit, start, stop, state = columns.values()
    follows = (unit[1:] == unit[:-1]) & (start[1:] == stop[:-1])
    first = np.append(True, ~follows)[: len(unit)]
    last = np.append(~follows, True)[: len(unit)]
    return pa.table([unit[first], start[first], stop[last], state[first]], schema=RANGES)


def rows_of(ranges: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the unit and the number of each live row of the ranges, in the order of the ranges (int64)."""
    live = ranges.filter(pc.equal(ranges["state"], blocks.LIVE))
    units, starts, stops = columns_of(live, *BOUNDS)
    lengths = stops - starts
    begins = np.cumsum(lengths) - lengths
    return np.repeat(units, lengths), np.arange(lengths.sum()) + np.repeat(starts - begins, lengths)


def encode(ranges: pa.Table) -> bytes:
    """Return a table of ranges as Base64, for the footer of a part."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RANGES, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(ranges.cast(RANGES))
    return base64.b64encode(sink.getvalue())


def decode(encoded: bytes) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(encoded)) as reader:
        return reader.read_all()


@dataclass(frozen=True)
class Totals:
    """The number of source rows, in all and by final state, and the numbers of units with wrong rows.

    `unsettled_units` have rows that are not settled. `doubled_units` have rows that are settled twice, or that do not
    exist in the unit.
    """

    rows: int
    written: int
    filtered: int
    quarantined: int
    unsettled_units: np.ndarray
    doubled_units: np.ndarray


def merge(tables: list[pa.Table]) -> pa.Table:
    """Return the ranges of several parts as one table. If several parts settle a row, only the first of them keeps it.

    `part` (int32) is the index in `tables`. Ranges of state `END` come first; both groups are sorted by unit and start.
    """
    schema = RANGES.append(pa.field("part", pa.int32()))
    if not tables:
        return schema.empty_table()
    ranges = pa.concat_tables(tables)
    columns = dict(zip(RANGES.names, columns_of(ranges, *RANGES.names), strict=True))
    columns["part"] = np.repeat(np.arange(len(tables), dtype=np.int32), list(map(len, tables)))
    _sort(columns)
    _drop_repeated(columns)
    overlapping = _units_with_overlaps(columns)
    if len(overlapping):
        is_overlapping = np.isin(columns["unit"], overlapping) & (columns["state"] != blocks.END)
        columns = _without_overlaps(columns, is_overlapping)
        _sort(columns)
    return pa.table(columns, schema=schema)


def _sort(columns: dict[str, np.ndarray]) -> None:
    """Sort ranges by unit and start, ENDs first; stable, so that parts keep their order."""
    order = np.lexsort((columns["start"], columns["unit"], columns["state"] != blocks.END))
    for name in columns:
        columns[name] = columns[name][order]


def _drop_repeated(columns: dict[str, np.ndarray]) -> None:
    """Keep the first of ranges that differ only in their part: most overlaps are whole rows or units."""
    is_new = np.ones(len(columns["unit"]), bool)
    is_new[1:] = columns["state"][:-1] == blocks.END
    for name in BOUNDS:
        is_new[1:] |= columns[name][1:] != columns[name][:-1]
    if not is_new.all():
        for name in columns:
            columns[name] = columns[name][is_new]


def _units_with_overlaps(columns: dict[str, np.ndarray]) -> np.ndarray:
    unit, start, stop, state = (columns[name] for name in RANGES.names)
    is_overlap = (unit[1:] == unit[:-1]) & (start[1:] < stop[:-1]) & (state[:-1] != blocks.END)
    return np.unique(unit[1:][is_overlap])


def _without_overlaps(columns: dict[str, np.ndarray], is_overlapping: np.ndarray) -> dict[str, np.ndarray]:
    """Return the ranges, with the overlapping ones replaced by pieces of them."""
    overlapping = np.flatnonzero(is_overlapping)
    overlapping = overlapping[np.argsort(columns["part"][overlapping], kind="stable")]
    unit, start, stop, holder = resolve_overlaps(*(columns[name][overlapping] for name in BOUNDS))
    pieces = {name: column[overlapping[holder]] for name, column in columns.items()}
    pieces |= {"unit": unit, "start": start, "stop": stop}
    return {name: np.concatenate([column[~is_overlapping], pieces[name]]) for name, column in columns.items()}


def resolve_overlaps(
    unit: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cut ranges into pieces without overlaps. Return each piece's unit, start, stop, and index of its range.

    If several ranges contain a row, the first of them keeps it.
    """
    units, rows = np.concatenate([unit, unit]), np.concatenate([start, stop])
    order = np.lexsort((rows, units))
    units, rows = units[order], rows[order]
    is_new = np.ones(len(units), bool)
    is_new[1:] = (units[1:] != units[:-1]) | (rows[1:] != rows[:-1])
    segment = np.empty(len(order), np.int64)
    segment[order] = np.cumsum(is_new) - 1
    units, rows = units[is_new], rows[is_new]  # each bound once; a segment is between two consecutive bounds
    owner = _first_cover(segment[: len(unit)], segment[len(unit) :], len(rows))
    begins = np.flatnonzero((owner != np.append(-1, owner[:-1])) & (owner < len(unit)))
    changes = np.append(np.flatnonzero(owner[1:] != owner[:-1]) + 1, len(owner))
    ends = changes[np.searchsorted(changes, begins, side="right")]
    return units[begins], rows[begins], rows[ends], owner[begins]


def _first_cover(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """Return the lowest index of an interval [low, high) that covers each number below `count`, or len(low).

    The method is a sparse table for range minima, run backwards, in O((intervals + count) log count).
    """
    cover = np.full(count, len(low))
    level = np.frexp(high - low)[1] - 1
    for k in range(int(level.max(initial=-1)), -1, -1):
        length = 2**k
        halves = cover.copy()  # an interval that covers a stretch covers both of its halves
        np.minimum(halves[length:], cover[: max(count - length, 0)], out=halves[length:])
        cover = halves
        intervals = np.flatnonzero(level == k)
        np.minimum.at(cover, low[intervals], intervals)
        np.minimum.at(cover, high[intervals] - length, intervals)
    return cover


def ranges_only(merged: pa.Table) -> pa.Table:
    """Return the ranges from `merge` without those of state `END`, which only have a unit's number of rows."""
    return merged.slice(int(np.count_nonzero(merged["state"].to_numpy() == blocks.END)))


def rows_in_state(merged: pa.Table, state: int) -> int:
    """Return the number of rows in the ranges whose state is `state`, such as `blocks.FILTERED`."""
    start, stop = columns_of(merged.filter(pc.equal(merged["state"], state)), "start", "stop")
    return int(np.sum(stop - start))


def inside(units: np.ndarray, numbers: np.ndarray, ranges: pa.Table) -> np.ndarray:
    """Return a bool for each row: True if it is in one of `ranges` (schema `RANGES`), which must not overlap."""
    if not len(ranges):
        return np.zeros(len(units), bool)
    unit, start, stop = columns_of(ranges, *BOUNDS)
    order = np.lexsort((start, unit))
    unit, start, stop = unit[order], start[order], stop[order]
    # Only the last range that begins at or before a row can contain it.
    keys = np.rec.fromarrays([unit, start])
    last = np.searchsorted(keys, np.rec.fromarrays([units, numbers], dtype=keys.dtype), side="right") - 1
    return (last >= 0) & (unit[last] == units) & (numbers < stop[last])


def rows_of_units(manifest: pa.Table, merged: pa.Table) -> np.ndarray:
    """Return the number of rows of each unit, from the manifest or a range of state `END`; -1 if it is unknown."""
    rows = pc.fill_null(manifest["rows"], -1).to_numpy().copy()
    ends = merged.filter(pa.array(merged["state"].to_numpy() == blocks.END))
    rows[ends["unit"].to_numpy()] = ends["stop"].to_numpy()
    return rows


def count(manifest: pa.Table, merged: pa.Table) -> Totals:
    """Count the source rows that `merged` settles, by state, and find the units with unsettled or repeated rows."""
    rows = rows_of_units(manifest, merged)
    low = manifest["first_row"].to_numpy()
    counts, existing = np.zeros(len(manifest), np.int64), np.zeros(len(manifest), np.int64)
    ranges = ranges_only(merged)
    for first in range(0, len(ranges), RANGES_AT_ONCE):
        units, starts, stops = columns_of(ranges.slice(first, RANGES_AT_ONCE), *BOUNDS)
        high = np.where(rows[units] < 0, np.iinfo(np.int64).max, low[units] + rows[units])
        np.add.at(counts, units, stops - starts)
        inside_unit = np.minimum(stops, high) - np.maximum(starts, low[units])
        np.add.at(existing, units, np.maximum(inside_unit, 0))
    return Totals(
        rows=int(rows[rows > 0].sum()),
        written=rows_in_state(merged, blocks.LIVE),
        filtered=rows_in_state(merged, blocks.FILTERED),
        quarantined=rows_in_state(merged, blocks.QUARANTINED),
        unsettled_units=np.flatnonzero((rows < 0) | (existing < rows)),
        doubled_units=np.flatnonzero((rows >= 0) & ((counts > rows) | (counts > existing))),
    )
