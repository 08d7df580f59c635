"""The door of this room for processes without Prefect and Ray: the rows that a sink would publish, unpublished."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.rows.blocks import FILTERED
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import QUARANTINE, parquet_bytes
from overnight.tasks.write.checks.column_statistics import combine, describe, summary
from overnight.tasks.write.checks.drift import mean_shift, share_distance
from overnight.tasks.write.checks.reasons import reasons
from overnight.tasks.write.merge.json_values import json_lines
from overnight.tasks.write.merge.output_schema import common_schema, conform
from overnight.tasks.write.publish.publish import repair
from overnight.tasks.write.publish.receipt import versions
from overnight.tasks.write.publish.undo import publish_earlier
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.stream.rows_to_publish import quarantine_details, rows_to_publish

__all__ = ["Outcome", "combine", "describe", "json_lines", "mean_shift", "outcome", "publish_earlier", "reasons"]
__all__ += ["repair", "share_distance", "summary", "versions"]


@dataclass(frozen=True)
class Outcome:
    """The rows to publish of a block, its failed rows (schema `QUARANTINE`), and the number of filtered source rows."""

    table: pa.Table
    quarantine: pa.Table
    filtered: int


def outcome(block: pa.Table, run: Run, sink: Sink, source_schema: pa.Schema | None) -> Outcome:
    """Return what a run would publish of a block that has passed all models and steps, in the published types.

    `source_schema` gives the type of a column of nulls. Raise `ContractError` for a column that the sink refuses.
    """
    table, _, block = rows_to_publish(block.combine_chunks(), run, sink)
    source_types = {field.name: field.type for field in source_schema or ()}
    schema = common_schema([table.schema])
    for number, field in enumerate(schema):
        if pa.types.is_null(field.type):
            schema = schema.set(number, field.with_type(source_types.get(field.name, field.type)))
    content = parquet_bytes(conform(table, schema), "none")
    return Outcome(
        pq.ParquetFile(pa.BufferReader(content)).read(),  # with the types that readers find
        quarantine_details(block).select(QUARANTINE.names),
        int(np.count_nonzero(block["__state"].to_numpy() == FILTERED)),
    )
