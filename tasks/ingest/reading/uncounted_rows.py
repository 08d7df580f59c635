"""Tables of files whose rows are counted while they are read."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from overnight.tasks.ingest.reading.table_blocks import bad_rows, end_of_text, is_damage, table_block, untrue_values


def uncounted_rows(unit: dict, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Blocks of the unit's rows, and what closes it; what lies behind damage is one bad row."""
    count, damage = 0, None
    try:
        for found in tables:
            data = found if unit["rows"] is None else found[: unit["rows"] - count]
            numbers = count + np.arange(len(data))
            if errors := untrue_values(data):
                yield bad_rows(unit, numbers[list(errors)].tolist(), list(errors.values()))
            good = np.setdiff1d(np.arange(len(data)), list(errors))
            if len(good):
                yield table_block(unit, numbers[good], data.take(good) if errors else data)
            count += len(data)
            if count == unit["rows"]:
                break
    except Exception as error:
        if not is_damage(error):
            raise
        damage = error
    yield from end_of_text(unit, count, damage)
