"""A sample of a partition: the first rows of its first units, for `--limit-rows`."""

import pyarrow as pa

from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import blocks
from overnight.tasks.state.read_plan import PENDING


def limited(source: Source, units: pa.Table, limit_rows: int, partition: str = "all") -> pa.Table:
    """Units that hold exactly the first `limit_rows` rows; where nobody counted a unit's rows, they are counted."""
    kept, left = [], limit_rows
    schema = source.common_schema(units, partition)
    for unit in units.to_pylist():
        if left <= 0:
            break
        count = unit["rows"] if unit["rows"] is not None else _count(source, unit, schema, left)
        kept.append(unit | {"rows": min(count, left)})
        left -= min(count, left)
    return pa.Table.from_pylist(kept, schema=units.schema)


def _count(source: Source, unit: dict, schema: pa.Schema | None, enough: int) -> int:
    """The unit's rows, or `enough` as soon as it has that many."""
    alone = pa.Table.from_pylist([unit | {"settled": None}], schema=PENDING)
    found = 0
    for block in source.read(alone, schema):
        found += int((block["__state"].to_numpy() != blocks.END).sum())
        if found >= enough:
            return enough
    return found
