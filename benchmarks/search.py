"""Measure a search of a large Lance table, row by row and by its index: `python benchmarks/search.py [--rows 1000000]`.

The table has vectors of 384 numbers in 2,000 clusters. It prints the medians of ten queries, and the share of the ten
nearest rows that the index finds.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import lance
import numpy as np
import pyarrow as pa

from overnight.tasks.search.ann import LanceTable, nearest_indexed
from overnight.tasks.search.knn import PublishedPartition, nearest
from overnight.tasks.storage.location import Location
from overnight.tasks.write.sinks.lance import LanceSink, bring_index_up_to_date

WIDTH, CLOUDS, SPREAD = 384, 2_000, 0.6
ROWS_AT_ONCE, QUERIES, COUNT = 20_000, 10, 10
COLUMN = "embedding"
SCHEMA = pa.schema([("row_id", pa.string()), (COLUMN, pa.list_(pa.float32(), WIDTH))])
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    random = np.random.default_rng(0)
    clouds = random.normal(size=(CLOUDS, WIDTH)).astype(np.float32)

    def vectors(count: int) -> np.ndarray:
        return clouds[random.integers(0, CLOUDS, count)] + random.normal(0, SPREAD, (count, WIDTH)).astype(np.float32)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, rows - first)
            numbers = pa.FixedSizeListArray.from_arrays(vectors(count).ravel(), WIDTH)
            yield pa.record_batch([[f"row {first + n}" for n in range(count)], numbers], schema=SCHEMA)

    with tempfile.TemporaryDirectory(prefix="overnight-search-") as folder:
        place = Location(folder)
        lance.write_dataset(pa.RecordBatchReader.from_batches(SCHEMA, batches()), folder, mode="overwrite")
        indexing, _ = timed(lambda: bring_index_up_to_date(place, COLUMN, "cosine"))
        table = LanceTable(place, None)
        receipt = {"partition": "all", "table_version": table.dataset.version}
        partitions = [PublishedPartition("all", partial(LanceSink(path=folder).read, place, receipt), table)]
        groups = table.index_groups(COLUMN)
        all_seconds, index_seconds, found = [], [], []

        def by_index(query: np.ndarray) -> list[dict[str, Any]]:
            return nearest_indexed(table, partitions, groups, COLUMN, query, COUNT).matches

        for query in vectors(QUERIES):
            seconds, every = timed(lambda query=query: nearest(partitions, COLUMN, query, COUNT).matches)
            all_seconds.append(seconds)
            seconds, near = timed(lambda query=query: by_index(query))
            index_seconds.append(seconds)
            found.append(len({row["row_id"] for row in every} & {row["row_id"] for row in near}) / COUNT)
    print("| rows | every row compared | by the index | of the ten nearest found | index made in |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    every_second, index_second = statistics.median(all_seconds), statistics.median(index_seconds)
    print(f"| {rows:,} | {every_second:.2f} s | {index_second:.3f} s | {np.mean(found):.0%} | {indexing:.0f} s |")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Call a function, and return its seconds and its result."""
    started = time.monotonic()
    made = work()
    return time.monotonic() - started, made


if __name__ == "__main__":
    main()
