"""Search for nearest neighbours by the vector index of a Lance table, which a sink with `index` keeps.

The index (IVF) has the vectors in groups. The groups nearest to the query are compared exactly, and the other groups
are skipped. So a few of the nearest rows may be missed. Rows that were published after the last update of the index are
compared, too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from overnight.tasks.search.knn import cosines, direction, with_score
from overnight.tasks.search.published_rows import LanceRows, require

LEAST_GROUPS, SHARE_OF_GROUPS = 20, 0.1  # of groups that are compared


def index_groups(rows: LanceRows, column: str) -> int:
    """Return the number of groups of vectors in the table's index of `column` by cosine; 0 without such an index.

    `rows` is any partition of the table.
    """
    table = rows.table()
    for index in table.describe_indices():
        if column in index.field_names:
            [about, *_] = table.stats.index_stats(index.name)["indices"]
            if about.get("metric_type") == "cosine":
                return int(about["num_partitions"])
    return 0


def nearest_indexed(
    partitions: Sequence[LanceRows], groups: int, column: str, query: np.ndarray, count: int
) -> tuple[list[dict[str, Any]], int]:
    """Return about the `count` rows most similar to `query` (D numbers), and the number of rows in `partitions`.

    The index is searched only in part, so a few of the most similar rows may be missing. All `partitions` are of one
    table, and `column` has its embeddings. Each match is a dict with `partition`, `row_id`, `score` and its other plain
    columns (texts, numbers, truth values, times), best first. `groups` is the result of `index_groups`.

    Raise `ContractError` if the column is missing or has no embeddings of D numbers, or if the query is all zeros.
    """
    rows, query = partitions[0], direction(query)
    table, day = rows.table(), rows.partition_column
    columns = [*rows.plain_columns(), column, *([day] if day else [])]
    require(table.schema, [*columns, "row_id"], rows.place)
    looked_into = max(round(SHARE_OF_GROUPS * groups), LEAST_GROUPS)
    near = {"column": column, "q": query.astype(np.float32), "k": count, "metric": "cosine", "nprobes": looked_into}
    condition = " OR ".join(f"({one.own()})" for one in partitions) if day else None
    scanner = table.scanner(columns, condition, nearest=near, prefilter=True, disable_scoring_autoprojection=True)
    found = scanner.to_table()
    scores = cosines(found[column].combine_chunks(), query, rows, column)
    order = np.argsort(-scores, kind="stable")
    matches = []
    for score, values in zip(scores[order].tolist(), found.drop_columns([column]).take(order).to_pylist(), strict=True):
        partition = str(values.pop(day)) if day else rows.partition
        matches.append(with_score(partition, values["row_id"], score, values))
    return matches, table.count_rows(condition)
