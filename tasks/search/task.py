"""Search: scans the published rows for those most like a query, and draws what was found."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.errors import OvernightError
from tasks.search.nearest import File, nearest
from tasks.search.sheet import Tile, draw_sheet
from tasks.search.shown import described

__all__ = ["File", "Tile", "draw_sheet", "scan"]


@task(name="scan", task_run_name="scan: compare with every published row", cache_policy=NO_CACHE, persist_result=False)
def scan(files: Sequence[File], column: str, query: np.ndarray, count: int) -> dict[str, Any]:
    """`matches` (partition, row_id, score and the other plain columns, best first), `rows`, `rows_without_embedding`.

    Raises `ContractError` where a file's embeddings cannot be compared with the query, `OvernightError` where no row
    has an embedding.
    """
    found = nearest(files, column, query, count)
    if not found.matches:
        raise OvernightError(f"expected rows with an embedding, found none in {found.rows:,} published rows.")
    return {
        "matches": described(found.matches),
        "rows": found.rows,
        "rows_without_embedding": found.rows_without_embedding,
    }
