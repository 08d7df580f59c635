"""Draw rows of a partition at random, and read only the units that hold them.

Every row is as likely as any other, and the same seed and inputs draw the same rows. A format that does not store the
number of its rows, such as CSV, is read once to count them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.ingest.listing.take_manifest import count_rows, take_manifest
from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.source import Source
from overnight.tasks.rows.blocks import END
from overnight.tasks.state.manifest import COUNTS, read_manifest, read_schema, read_snapshot
from overnight.tasks.state.manifest import read_units as units_of
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

MOST = 2**62


@dataclass(frozen=True)
class DrawnRows:
    """Rows of a partition in random order: their units, and their numbers in the file. `total` rows are in it.

    The source has its current version. `schema` is None if each file determines its own.
    """

    run: Run
    source: Source
    schema: pa.Schema | None
    units: np.ndarray
    rows: np.ndarray
    total: int

    def read(self, first: int, stop: int) -> Iterator[pa.Table]:
        """Yield blocks of the drawn rows from number `first` up to `stop`, in the order of the listing."""
        units, rows = self.units[first:stop], self.rows[first:stop]
        order = np.lexsort((rows, units))
        numbers, starts = np.unique(units[order], return_index=True)
        table = units_of(self.run.manifest, numbers)
        skipped = list(map(_all_except, np.split(rows[order], starts[1:])[: len(numbers)]))
        pending = table.append_column("settled", pa.array(skipped, PENDING.field("settled").type))
        for block in read_units(pending.cast(PENDING), self.source, self.run, self.schema):
            live = block.filter(pc.not_equal(block["__state"], END))
            if len(live):
                yield live


def draw_rows(run: Run, source: Source, most: int, seed: int, manifest: Location | None = None) -> DrawnRows:
    """Draw at most `most` rows of the run's partition. The manifest of all inputs goes to `run.manifest`.

    With the `manifest` of an earlier run, these are the inputs, in the versions that it lists.
    """
    if manifest:
        manifest.copy_to(run.manifest)
    else:
        take_manifest(run.manifest, source, run.partition)
    snapshot, schema = read_snapshot(run.manifest), read_schema(run.manifest)
    source = source.at(snapshot) if snapshot else source
    counts, _ = read_manifest(run.manifest, COUNTS)
    rows = _rows_of(run, source, counts, schema)
    ends = np.cumsum(rows)
    total = int(ends[-1]) if len(ends) else 0
    positions = np.random.default_rng(seed).choice(total, min(most, total), replace=False)
    units = np.searchsorted(ends, positions, side="right")
    numbers = positions - (ends - rows)[units] + counts["first_row"].to_numpy()[units]
    return DrawnRows(run, source, schema, units, numbers, total)


def _rows_of(run: Run, source: Source, counts: pa.Table, schema: pa.Schema | None) -> np.ndarray:
    """Return the number of rows of each unit. Units without it in the manifest are read."""
    unknown = np.flatnonzero(counts["rows"].is_null().to_numpy())
    rows = pc.fill_null(counts["rows"], 0).to_numpy().copy()
    for unit in units_of(run.manifest, unknown).to_pylist():
        rows[unit["unit"]] = count_rows(source, unit, schema, MOST)
    return rows


def _all_except(rows: np.ndarray) -> list[int]:
    """Return the ranges of rows to skip, `[start, stop, ...]`, so that only these ascending `rows` are read."""
    starts, stops = np.append(0, rows + 1), np.append(rows, MOST)
    return np.column_stack([starts, stops]).ravel().tolist()
