"""Search: scans the published rows for those most similar to a query, and draws the matches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE

from overnight.tasks.errors import OvernightError
from overnight.tasks.search.ann import LanceTable, nearest_indexed
from overnight.tasks.search.contact_sheet import Tile, draw_sheet
from overnight.tasks.search.knn import PublishedPartition, nearest

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
    groups = 0
    if table and not exact:
        groups = table.index_groups(column)
    if table and groups:
        result = nearest_indexed(table, in_table, groups, column, query, count)
    else:
        result = nearest(published, column, query, count)
    if not result.matches:
        raise OvernightError(f"expected rows with an embedding, found none in {result.rows:,} published rows.")
    without = result.rows_without_embedding
    return {"matches": result.matches, "rows": result.rows, "rows_without_embedding": without, "exact": not groups}
