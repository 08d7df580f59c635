"""Manifests and read plans of units that are at hand; a run writes them from streams."""

import numpy as np
import pyarrow as pa

from overnight.tasks.state.manifest import begin_manifest
from overnight.tasks.state.read_plan import EarlierRows, rows_in, stream_order
from overnight.tasks.storage.location import Location


def write_manifest(location: Location, units: pa.Table, inputs: str, schema: pa.Schema | None) -> None:
    """Write the manifest of these units."""
    with begin_manifest(location) as manifest:
        manifest.add(units)
        manifest.finish(inputs, schema)


def write_order(location: Location, pending: pa.Table, blocks: np.ndarray, quarantined: int = 0) -> None:
    """Write `pending` (schema `PENDING`, in reading order) with the block of each unit, ascending.

    `quarantined`: how many rows of the partition earlier attempts quarantined.
    """
    settled_rows = rows_in(pending["settled"].combine_chunks())
    left = None if pending["rows"].null_count else pending["rows"].to_numpy() - settled_rows
    stream_order(
        location, [pending], blocks, pending["size"].to_numpy(), left, EarlierRows(int(settled_rows.sum()), quarantined)
    )
