"""The sample rows of the preprocessing trial: what they hold, and the bytes of a row after the models."""

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from overnight.tasks.infer.autotune.trial import Trial
from overnight.tasks.infer.heavy_columns import heavy_columns
from overnight.tasks.rows import blocks
from overnight.tasks.storage.location import Location


def read_sample(place: Location) -> pa.Table:
    """Return the live rows of the preprocessing trial."""
    with place.open() as file:
        return blocks.live_block(pa.ipc.open_file(file.read()).read_all())


def bytes_a_row(sample: pa.Table, keep: Sequence[str], bytes_stay: bool) -> float:
    """Return the bytes of a source row of the sample after the models.

    The models' columns are still unknown and do not count.
    """
    light = blocks.without(sample, sorted(heavy_columns(sample, bytes_stay=bytes_stay) - set(keep)))
    return blocks.live_rows(light)[0].nbytes / len(sample) if len(sample) else 0.0


def bytes_made(trial: Trial | None) -> float:
    """Bytes that a model adds to a row in columns of a fixed width, such as embeddings."""
    lists = [field.type for field in trial.columns if types.is_fixed_size_list(field.type)] if trial else []
    return sum(kind.list_size * kind.value_type.bit_width / 8 for kind in lists if types.is_primitive(kind.value_type))
