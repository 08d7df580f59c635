"""The record of what a staged part settles, kept in the part's own Parquet footer.

A table of ranges: `unit`, `start`, `stop` (rows start <= n < stop of the unit's file) and `state` (`rows.LIVE` for
written, `FILTERED`, `QUARANTINED`). For a unit whose number of rows was found while reading, one range of state `END`
has that number as `stop`. There is no second record that could disagree with the data.
"""

import base64
import heapq
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tasks import rows

KEY = b"overnight.settled"
RANGES = pa.schema([("unit", pa.int64()), ("start", pa.int64()), ("stop", pa.int64()), ("state", pa.int8())])


def ranges_of(block: pa.Table) -> pa.Table:
    """The ranges that the rows of a block settle, sorted by unit and start; rows may come in any order."""
    units, numbers = block["__unit"].to_numpy(), block["__row"].to_numpy()
    states = block["__state"].to_numpy()
    ends = states == rows.END
    order = np.lexsort((numbers[~ends], units[~ends]))
    unit, number, state = units[~ends][order], numbers[~ends][order], states[~ends][order]
    repeated = (unit[1:] == unit[:-1]) & (number[1:] == number[:-1])
    fresh = np.concatenate([[True], ~repeated]) if len(unit) else np.empty(0, bool)
    unit, number, state = unit[fresh], number[fresh], state[fresh]
    breaks = np.ones(len(unit), bool)
    breaks[1:] = (unit[1:] != unit[:-1]) | (number[1:] != number[:-1] + 1) | (state[1:] != state[:-1])
    starts = np.flatnonzero(breaks)
    stops = np.append(starts[1:], len(unit)) - 1 if len(unit) else starts
    return pa.table(
        {
            "unit": np.concatenate([unit[starts], units[ends]]),
            "start": np.concatenate([number[starts], np.zeros(ends.sum(), np.int64)]),
            "stop": np.concatenate([number[stops] + 1, numbers[ends]]),
            "state": np.concatenate([state[starts], states[ends]]),
        },
        schema=RANGES,
    )


def encode(ranges: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RANGES, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(ranges.cast(RANGES))
    return base64.b64encode(sink.getvalue())


def decode(encoded: bytes) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(encoded)) as reader:
        return reader.read_all()


@dataclass(frozen=True)
class Totals:
    """Source rows by their end; the units with rows that are not settled, and with rows settled twice or not theirs."""

    rows: int
    written: int
    filtered: int
    quarantined: int
    unsettled_units: np.ndarray
    doubled_units: np.ndarray


def merge(tables: list[pa.Table]) -> pa.Table:
    """The ranges of several parts, sorted by unit and start, where the first part to name a row wins.

    Adds `part` (int32), the index in `tables` that each range comes from.
    """
    if not tables:
        return RANGES.append(pa.field("part", pa.int32())).empty_table()
    joined = pa.concat_tables(
        [t.append_column("part", pa.array(np.full(len(t), i, np.int32))) for i, t in enumerate(tables)]
    ).combine_chunks()
    unit, start, stop = (joined[name].to_numpy() for name in ("unit", "start", "stop"))
    ends = joined["state"].to_numpy() == rows.END
    order = np.lexsort((joined["part"].to_numpy(), start, unit, ~ends))
    unit, start, stop = unit[order], start[order], stop[order]
    overlaps = (unit[1:] == unit[:-1]) & (start[1:] < stop[:-1]) & ~ends[order][:-1] & ~ends[order][1:]
    joined = joined.take(order)
    return joined if not overlaps.any() else _without_overlaps(joined)


def _without_overlaps(ranges: pa.Table) -> pa.Table:
    """Cuts from each range the rows that a part of lower index has settled: a sweep over the bounds of each unit."""
    result, by_unit = [], defaultdict(list)
    for unit, start, stop, state, part in zip(*(ranges[name].to_pylist() for name in ranges.column_names), strict=True):
        if state == rows.END:
            result.append((unit, start, stop, state, part))
        else:
            by_unit[unit].append((start, stop, state, part))
    for unit, found in sorted(by_unit.items()):
        open_ranges: list[tuple[int, int, int, int]] = []
        pieces: list[list[int]] = []
        coming = iter([*found, (float("inf"),)])
        upcoming = next(coming)
        for low, high in pairwise(sorted({bound for start, stop, *_ in found for bound in (start, stop)})):
            while upcoming[0] <= low:
                heapq.heappush(open_ranges, (upcoming[3], *upcoming[:3]))
                upcoming = next(coming)
            while open_ranges and open_ranges[0][2] <= low:
                heapq.heappop(open_ranges)
            if not open_ranges:
                continue
            part, _, _, state = open_ranges[0]
            if pieces and pieces[-1][1:] == [low, state, part]:
                pieces[-1][1] = high
            else:
                pieces.append([low, high, state, part])
        result.extend((unit, *piece) for piece in pieces)
    columns = list(zip(*result, strict=True))
    return pa.table(dict(zip(ranges.column_names, columns, strict=True)), schema=ranges.schema)


def inside(units: np.ndarray, numbers: np.ndarray, ranges: pa.Table) -> np.ndarray:
    """Whether each of the rows (unit, number) lies in one of `ranges`, which do not overlap."""
    order = np.lexsort((ranges["start"].to_numpy(), ranges["unit"].to_numpy()))
    unit, start, stop = (ranges[name].to_numpy()[order] for name in ("unit", "start", "stop"))
    if not len(unit):
        return np.zeros(len(units), bool)
    # The last range that begins at or before a row is the only one that can hold it.
    keys = np.rec.fromarrays([unit, start])
    place = np.searchsorted(keys, np.rec.fromarrays([units, numbers], dtype=keys.dtype), side="right") - 1
    return (place >= 0) & (unit[place] == units) & (numbers < stop[place])


def rows_of_units(manifest: pa.Table, merged: pa.Table) -> np.ndarray:
    """Rows of each manifest unit (int64), from the manifest or from an END; -1 where not known yet."""
    expected = manifest["rows"].to_numpy(zero_copy_only=False)
    known = np.where(np.isnan(expected.astype(np.float64)), -1, expected).astype(np.int64)
    ends = merged.filter(pa.array(merged["state"].to_numpy() == rows.END))
    known[ends["unit"].to_numpy()] = ends["stop"].to_numpy()
    return known


def count(manifest: pa.Table, merged: pa.Table) -> Totals:
    """What `merged` settles of the manifest, whose `unit` column counts from 0."""
    expected = rows_of_units(manifest, merged)
    states = merged["state"].to_numpy()
    ranged = states != rows.END
    units, starts, stops = (merged[name].to_numpy()[ranged] for name in ("unit", "start", "stop"))
    lengths = stops - starts
    low = manifest["first_row"].to_numpy()
    high = np.where(expected < 0, np.iinfo(np.int64).max, low + expected)
    within = np.maximum(np.minimum(stops, high[units]) - np.maximum(starts, low[units]), 0)
    settled, proper = (
        np.bincount(units, weights=weights, minlength=len(manifest)).astype(np.int64) for weights in (lengths, within)
    )
    by_state = np.bincount(states[ranged], weights=lengths, minlength=rows.END).astype(np.int64)
    return Totals(
        rows=int(expected[expected > 0].sum()),
        written=int(by_state[rows.LIVE]),
        filtered=int(by_state[rows.FILTERED]),
        quarantined=int(by_state[rows.QUARANTINED]),
        unsettled_units=np.flatnonzero((expected < 0) | (proper < expected)),
        doubled_units=np.flatnonzero((expected >= 0) & ((settled > expected) | (settled > proper))),
    )
