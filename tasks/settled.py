"""The record of what a staged part settles, kept in the part's own Parquet footer.

A table of ranges: `unit`, `start`, `stop` (rows start <= n < stop of the unit's file) and `state` (`rows.LIVE` for
written, `FILTERED`, `QUARANTINED`). For a unit whose number of rows was found while reading, one range of state `END`
has that number as `stop`. There is no second record that could disagree with the data.
"""

import base64
from dataclasses import dataclass

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
    """Source rows by their end, and the number of units whose rows are not all settled, or settled twice."""

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
    overlaps = (unit[1:] == unit[:-1]) & (start[1:] < stop[:-1]) & ~ends[order][1:]
    joined = joined.take(order)
    return joined if not overlaps.any() else _without_overlaps(joined)


def _without_overlaps(ranges: pa.Table) -> pa.Table:
    """Cuts from each range the rows that a part of lower index has already settled."""
    kept: dict[int, list[tuple[int, int]]] = {}
    result = []
    for unit, start, stop, state, part in sorted(
        zip(*(ranges[name].to_pylist() for name in ("unit", "start", "stop", "state", "part")), strict=True),
        key=lambda r: (r[4], r[0], r[1]),
    ):
        if state == rows.END:
            result.append((unit, start, stop, state, part))
            continue
        pieces = [(start, stop)]
        for low, high in kept.get(unit, []):
            pieces = [p for a, b in pieces for p in ((a, min(b, low)), (max(a, high), b)) if p[0] < p[1]]
        kept.setdefault(unit, []).extend(pieces)
        result.extend((unit, a, b, state, part) for a, b in pieces)
    result.sort(key=lambda r: (r[3] != rows.END, r[0], r[1]))
    columns = list(zip(*result, strict=True)) if result else [[]] * 5
    return pa.table(dict(zip(ranges.column_names, columns, strict=True)), schema=ranges.schema)


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
    lengths = merged["stop"].to_numpy() - merged["start"].to_numpy()
    ranged = states != rows.END
    settled = np.bincount(merged["unit"].to_numpy()[ranged], weights=lengths[ranged], minlength=len(manifest)).astype(
        np.int64
    )
    return Totals(
        rows=int(expected[expected > 0].sum()),
        written=int(lengths[states == rows.LIVE].sum()),
        filtered=int(lengths[states == rows.FILTERED].sum()),
        quarantined=int(lengths[states == rows.QUARANTINED].sum()),
        unsettled_units=np.flatnonzero((expected < 0) | (settled < expected)),
        doubled_units=np.flatnonzero((expected >= 0) & (settled > expected)),
    )
