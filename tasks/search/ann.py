"""Search for nearest neighbours by the vector index of a Lance table, which a sink with `index` keeps.

The index (IVF) has the vectors in groups. The groups nearest to the query are compared exactly, and the other groups
are skipped. So a few of the nearest rows may be missed. Rows that were published after the last update of the index are
compared, too.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.partition_names import partition_condition, partition_values
from overnight.tasks.search.knn import (
    Found,
    PublishedPartition,
    comparable,
    compared,
    direction,
    plain_columns,
    require,
)
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.object_store import object_store_uri, storage_options

LEAST_GROUPS, SHARE_OF_GROUPS = 20, 0.1  # of groups that are compared


@dataclass(frozen=True)
class LanceTable:
    """The Lance table at `place`. `partition_column` is None for the partition `all`; several have commas between."""

    place: Location
    partition_column: str | None

    @cached_property
    def dataset(self) -> Any:
        """Return the table's newest version at the first call, as a `lance.LanceDataset`."""
        lance: Any = require_extra("lance", "search in a Lance table", "plan")
        # otherwise it warns of a future change
        os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")
        return lance.dataset(object_store_uri(self.place), storage_options=storage_options(self.place.uri))

    def index_groups(self, column: str) -> int:
        """Return the number of groups of vectors in the index of `column` by cosine; 0 without such an index."""
        for index in self.dataset.describe_indices():
            if column in index.field_names:
                [statistics, *_] = self.dataset.stats.index_stats(index.name)["indices"]
                if statistics.get("metric_type") == "cosine":
                    return int(statistics["num_partitions"])
        return 0


def nearest_indexed(
    table: LanceTable, partitions: Sequence[PublishedPartition], groups: int, column: str, query: np.ndarray, count: int
) -> Found:
    """Return about the `count` rows most similar to `query` (D numbers), best first.

    Raise `ContractError` if the column has no embeddings of D numbers, or if the query is all zeros.
    """
    query, dataset, source = direction(query), table.dataset, str(table.place)
    columns = table.partition_column or ""
    own_columns = columns.split(",") if columns else []
    conditions, names = [], dict[tuple[Any, ...], str]()
    for published in partitions if columns else ():
        conditions.append(f"({partition_condition(columns, published.partition)})")
        values = partition_values(columns, published.partition)
        names[tuple(values.values())] = published.partition
    require(dataset.schema, [column, "row_id", *own_columns], source)
    probes = max(round(SHARE_OF_GROUPS * groups), LEAST_GROUPS)
    near = {"column": column, "q": query.astype(np.float32), "k": count, "metric": "cosine", "nprobes": probes}
    options = {"prefilter": True, "disable_scoring_autoprojection": True}
    condition = " OR ".join(conditions) or None
    read = [*plain_columns(dataset.schema), column]
    rows = dataset.scanner(read, condition, nearest=near, **options).to_table()
    partition: Any = partitions[0].partition
    if names:
        keys = zip(*(rows[name].to_pylist() for name in own_columns), strict=True)
        partition = pa.array(map(names.get, keys), pa.string())
    result = compared([comparable(rows, column, query.size, source, partition)], query, count)
    rows = rows.drop_columns([column, *own_columns])
    for match, number in zip(result.matches, result.numbers, strict=True):
        match.update(rows.slice(number, 1).to_pylist()[0] | match)
    return replace(result, rows=dataset.count_rows(condition), rows_without_embedding=None)
