"""Tables of files whose rows are counted while they are read."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.ingest.tables import end_of_text, is_damage, table_block


def uncounted_rows(unit: dict, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Blocks of the unit's rows, and what closes it; what lies behind damage is one bad row."""
    count, damage = 0, None
    try:
        for found in tables:
            data = found if unit["rows"] is None else found[: unit["rows"] - count]
            if len(data):
                yield table_block(unit, count + np.arange(len(data)), data)
            count += len(data)
            if count == unit["rows"]:
                break
    except Exception as error:
        if not is_damage(error):
            raise
        damage = error
    yield from end_of_text(unit, count, damage)
