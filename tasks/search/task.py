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
from overnight.tasks.search.published_rows import LanceRows, ParquetRows, Rows, newest_version

__all__ = ["LanceRows", "ParquetRows", "Rows", "Tile", "draw_sheet", "newest_version", "scan"]


@task(name="scan", task_run_name="scan: compare with published rows", cache_policy=NO_CACHE, persist_result=False)
def scan(published: Sequence[Rows], column: str, query: np.ndarray, count: int, exact: bool) -> dict[str, Any]:
    """Search the published rows most similar to `query` (D numbers), and return the matches and the counts as a dict.

    The keys are `matches` (partition, row_id, score and the other plain columns, best first), `rows` (the number of
    rows), `rows_without_embedding` (None: not counted) and `exact`. The value of `exact` is True if every row was
    compared, and not only the near ones of an index.

    `column` has the embeddings of rows. With the argument `exact`, every row is compared although there is an index.

    Raise `ContractError` if embeddings cannot be compared with the query, `OvernightError` if no row has one.
    """
    of_table = [rows for rows in published if isinstance(rows, LanceRows)]
    groups = index_groups(of_table[0], column) if of_table and not exact else 0
    if groups:
        matches, rows = nearest_indexed(of_table, groups, column, query, count)
        without, exact = None, False
    else:
        found = nearest(published, column, query, count)
        matches, rows, without, exact = described(found.matches), found.rows, found.rows_without_embedding, True
    if not matches:
        raise OvernightError(f"expected rows with an embedding, found none in {rows:,} published rows.")
    return {"matches": matches, "rows": rows, "rows_without_embedding": without, "exact": exact}
