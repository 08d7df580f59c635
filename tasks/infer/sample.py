"""The rows of the preprocessing trial, a few rows that passed the steps, and the bytes of such a row."""

from collections.abc import Sequence

import pyarrow as pa

from overnight.tasks.infer.heavy_columns import heavy_columns
from overnight.tasks.rows import blocks
from overnight.tasks.storage.location import Location


def read_sample(place: Location) -> pa.Table:
    """Return the block of sample rows that the preprocessing trial wrote to `place`, without settled rows."""
    with place.open() as file:
        return blocks.live_block(pa.ipc.open_file(file.read()).read_all())


def bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Return the mean bytes of a source row in the block `sample`, without the columns that the models will add.

    Columns of bytes and arrays of two or more dimensions do not count, except those in `keep`. If `bytes_stay` is True,
    columns of bytes count, too. The result is 0 for an empty sample.
    """
    light = blocks.without(sample, sorted(heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)))
    return blocks.live_rows(light)[0].nbytes / len(sample) if len(sample) else 0.0
