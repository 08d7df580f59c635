"""The door of this room for processes without Prefect and Ray, which show rows and write nothing.

It gives the rows that a sink would publish.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.rows.blocks import FILTERED
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import QUARANTINE, parquet_bytes
from overnight.tasks.write.checks.reasons import reasons
from overnight.tasks.write.merge.json_values import json_lines
from overnight.tasks.write.merge.output_schema import common_schema, conform
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.stream.rows_to_publish import quarantine_details, rows_to_publish

__all__ = ["Outcome", "json_lines", "outcome", "reasons"]


@dataclass(frozen=True)
class Outcome:
    """The result of a block of rows, as a run would publish it.

    `table` has the rows to publish, and `quarantine` the failed ones (schema `QUARANTINE`). `filtered` is the number of
    filtered source rows.
    """

    table: pa.Table
    quarantine: pa.Table
    filtered: int


def outcome(block: pa.Table, run: Run, sink: Sink, source_schema: pa.Schema | None) -> Outcome:
    """Return what a run would publish of a block that has passed all models and steps.

    The table has the columns and types of a published file. A column with only nulls gets its type from
    `source_schema`, the schema of the source's files. If that is None, the type stays null; a run would take the type
    from other rows. Raise `ContractError` for a column that the sink refuses.
    """
    table, _, block = rows_to_publish(block.combine_chunks(), run, sink)
    known = {field.name: field.type for field in source_schema or ()}
    fields = [
        field.with_type(known.get(field.name, field.type)) if pa.types.is_null(field.type) else field
        for field in common_schema([table.schema])
    ]
    table = conform(table, pa.schema(fields))
    return Outcome(
        pq.ParquetFile(pa.BufferReader(parquet_bytes(table, "none"))).read(),  # with the types that readers find
        quarantine_details(block).select(QUARANTINE.names),
        int(np.count_nonzero(block["__state"].to_numpy() == FILTERED)),
    )
