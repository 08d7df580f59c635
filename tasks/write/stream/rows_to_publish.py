"""The rows of a block that a sink accepts, and the details of quarantined rows. This file does not use Ray."""

import numpy as np
import pyarrow as pa

from overnight.tasks.rows.blocks import IDENTITY, QUARANTINED, live_rows, with_errors
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import DETAILS, SOURCE_ROW
from overnight.tasks.write.merge.output_schema import publishable
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.stream.unwritable_rows import unfit_rows


def rows_to_publish(block: pa.Table, run: Run, sink: Sink) -> tuple[pa.Table, np.ndarray, pa.Table]:
    """Return the rows of a block that the sink accepts, the place in the block of each one's source row, and the block.

    In the returned block, rows that the sink refuses are quarantined. Raise `ContractError` for a refused column.
    """
    live, places = live_rows(block)
    table = publishable(live)
    if len(table):  # rows that ended before a step have none of its columns
        sink.refuse_columns(run, table.schema)
    if unfit := unfit_rows(table, sink.take):
        errors = {int(places[row]): unfit[row] for row in sorted(unfit, reverse=True)}
        block = with_errors(block, errors, "write")
        is_fit = ~np.isin(places, list(errors))
        table, places = table.filter(pa.array(is_fit)), places[is_fit]
    return table, places, block


def quarantine_details(block: pa.Table) -> pa.Table:
    """Return the details (schema `DETAILS`) of the quarantined rows of a block."""
    is_failure = block["__state"].to_numpy() == QUARANTINED
    if not is_failure.any():
        return DETAILS.empty_table()
    failures = block.filter(pa.array(is_failure))
    columns = []
    for name in DETAILS.names:
        source = name if name in (*IDENTITY, *SOURCE_ROW) else f"__{name}"
        if source in failures.column_names:
            columns.append(failures[source])
        else:
            columns.append(pa.nulls(len(failures), pa.string()))
    return pa.table(columns, schema=DETAILS)
