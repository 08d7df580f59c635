"""Search for nearest neighbours by the vector index of a Lance table, which a sink with `index` keeps.

The index (IVF) has the vectors in groups. The groups nearest to the query are compared exactly, and the other groups
are skipped. So a few of the nearest rows may be missed. Rows that were published after the last update of the index are
compared, too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from overnight.tasks.search.knn import cosines, direction, with_score
from overnight.tasks.search.partition import LanceTable, PublishedPartition, plain_columns, require

LEAST_GROUPS, SHARE_OF_GROUPS = 20, 0.1  # of groups that are compared


def index_groups(table: LanceTable, column: str) -> int:
    """Return the number of groups of vectors in the table's index of `column` by cosine; 0 without such an index."""
    dataset = table.dataset
    for index in dataset.describe_indices():
        if column in index.field_names:
            [statistics, *_] = dataset.stats.index_stats(index.name)["indices"]
            if statistics.get("metric_type") == "cosine":
                return int(statistics["num_partitions"])
    return 0


def nearest_indexed(
    table: LanceTable, partitions: Sequence[PublishedPartition], groups: int, column: str, query: np.ndarray, count: int
) -> tuple[list[dict[str, Any]], int]:
    """Return about the `count` rows most similar to `query` (D numbers), best first, and the number of rows searched.

    Raise `ContractError` if the column has no embeddings of D numbers, or if the query is all zeros.
    """
    query, dataset, day = direction(query), table.dataset, table.partition_column
    require(dataset.schema, [column, "row_id", *([day] if day else [])], str(table.place))
    probes = max(round(SHARE_OF_GROUPS * groups), LEAST_GROUPS)
    near = {"column": column, "q": query.astype(np.float32), "k": count, "metric": "cosine", "nprobes": probes}
    condition = None
    if day:
        condition = " OR ".join(f"({day} = date '{partition.partition}')" for partition in partitions)
    columns, options = [*plain_columns(dataset.schema), column], {"disable_scoring_autoprojection": True}
    rows = dataset.scanner(columns, condition, nearest=near, prefilter=True, **options).to_table()
    scores = cosines(rows[column].combine_chunks(), query, str(table.place), column)
    order, matches = np.argsort(-scores, kind="stable"), []
    for score, values in zip(scores[order].tolist(), rows.drop_columns([column]).take(order).to_pylist(), strict=True):
        partition = str(values.pop(day)) if day else partitions[0].partition
        matches.append(with_score(partition, values["row_id"], score, values))
    return matches, dataset.count_rows(condition)
