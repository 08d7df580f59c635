"""Search: scans the published rows for those most similar to a query, and draws the matches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE

from overnight.tasks.errors import OvernightError
from overnight.tasks.search.ann import index_groups, nearest_indexed
from overnight.tasks.search.contact_sheet import Tile, draw_sheet
from overnight.tasks.search.knn import described, nearest
from overnight.tasks.search.partition import LanceTable, PublishedPartition

__all__ = ["LanceTable", "PublishedPartition", "Tile", "draw_sheet", "scan"]


@task(name="scan", task_run_name="scan: compare with published rows", cache_policy=NO_CACHE, persist_result=False)
def scan(
    published: Sequence[PublishedPartition], column: str, query: np.ndarray, count: int, exact: bool
) -> dict[str, Any]:
    """Search the published rows whose embedding in `column` is most similar to `query`. With `exact`, use no index.

    `rows_without_embedding` is None if they were not counted. Raise `OvernightError` if no row has an embedding.
    """
    in_table = [partition for partition in published if partition.table]
    table = in_table[0].table if in_table else None
    groups = 0 if exact or table is None else index_groups(table, column)
    if table and groups:
        matches, rows = nearest_indexed(table, in_table, groups, column, query, count)
        without = None
    else:
        result = nearest(published, column, query, count)
        matches, rows, without = described(result.matches), result.rows, result.rows_without_embedding
    if not matches:
        raise OvernightError(f"expected rows with an embedding, found none in {rows:,} published rows.")
    return {"matches": matches, "rows": rows, "rows_without_embedding": without, "exact": not groups}
