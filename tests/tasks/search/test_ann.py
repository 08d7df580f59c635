"""Search in Lance tables: every row where there is no index, else what the index finds near."""

from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.search.ann import LanceTable, nearest_indexed
from overnight.tasks.search.knn import PublishedPartition, nearest
from overnight.tasks.search.task import scan
from overnight.tasks.storage.location import Location
from overnight.tasks.write.sinks.lance import LanceSink

WIDTH, ROWS = 16, 2000
DAYS = ("2026-01-01", "2026-01-02")


def some(vectors: np.ndarray, first: int) -> pa.Table:
    numbers = range(first, first + len(vectors))
    days = [date.fromisoformat(DAYS[n % 2]) for n in numbers]
    embeddings = pa.array(list(vectors), pa.list_(pa.float32(), WIDTH))
    names = [f"it's #{n}" for n in numbers]
    return pa.table({"row_id": names, "embedding": embeddings, "number": numbers, "date": days})


@pytest.fixture
def vectors() -> np.ndarray:
    """In forty clouds, as embeddings are."""
    random = np.random.default_rng(0)
    return (random.normal(size=(40, WIDTH))[np.arange(ROWS) % 40] + random.normal(0, 0.3, (ROWS, WIDTH))).astype("f4")


@pytest.fixture
def place(tmp_path: Path, vectors: np.ndarray) -> str:
    lance.write_dataset(some(vectors, 0), str(tmp_path / "table"), max_rows_per_file=700)
    return str(tmp_path / "table")


def partitions(place: str, *days: str) -> list[PublishedPartition]:
    table, sink = LanceTable(Location(place), "date"), LanceSink(path=place)
    receipts = [{"partition": day, "table_version": table.dataset.version} for day in days]
    reads = [partial(sink.read, Location(place), receipt) for receipt in receipts]
    return [PublishedPartition(day, read, table) for day, read in zip(days, reads, strict=True)]


def indexed(found: list[PublishedPartition], query: np.ndarray, count: int) -> tuple[list[dict[str, Any]], int]:
    assert found[0].table
    result = nearest_indexed(found[0].table, found, 100, "embedding", query, count)
    return result.matches, result.rows


def best(vectors: np.ndarray, query: np.ndarray, wanted: np.ndarray) -> list[int]:
    scores = vectors @ query / np.linalg.norm(vectors, axis=1)
    return [n for n in np.argsort(-scores).tolist() if wanted[n]]


def index(place: str, metric: str = "cosine") -> None:
    lance.dataset(place).create_index("embedding", "IVF_FLAT", metric=metric, num_partitions=100)


def test_every_row_of_a_table_is_compared_as_those_of_files_are(place: str, vectors: np.ndarray) -> None:
    query = vectors[3] + 0.01
    found = nearest(partitions(place, *DAYS), "embedding", query, 9)
    rows = found.matches
    assert [row["number"] for row in rows] == best(vectors, query, np.ones(ROWS, bool))[:9]
    assert [row["partition"] for row in rows] == [DAYS[row["number"] % 2] for row in rows]
    assert found.rows == ROWS
    [only] = partitions(place, DAYS[1])
    rows = nearest([only], "embedding", query, 9).matches
    assert [row["number"] for row in rows] == best(vectors, query, np.arange(ROWS) % 2 == 1)[:9]
    with pytest.raises(ContractError, match="a column vector, found row_id, embedding"):
        nearest([only], "vector", query, 1)


def test_an_index_is_asked_where_there_is_one(place: str, vectors: np.ndarray) -> None:
    assert LanceTable(Location(place), "date").index_groups("embedding") == 0
    index(place)
    both = partitions(place, *DAYS)
    assert LanceTable(Location(place), "date").index_groups("embedding") == 100
    hits = 0
    for query in vectors[:20] + np.float32(0.01):
        found, rows = indexed(both, query, 10)
        exact = nearest(both, "embedding", query, 10).matches
        scores = {row["row_id"]: row["score"] for row in exact}
        hits += len([row for row in found if row["row_id"] in scores])
        assert all(row["score"] == scores.get(row["row_id"], row["score"]) for row in found)
        assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)
        assert set(found[0]) == set(exact[0])
        assert rows == ROWS
    assert hits > 180
    found, rows = indexed(both[1:], vectors[3], 10)
    assert (rows, {row["partition"] for row in found}) == (ROWS // 2, {DAYS[1]})


def test_rows_that_the_index_does_not_know_yet_are_found_and_the_chosen_version_is_searched(
    place: str, vectors: np.ndarray
) -> None:
    index(place)
    before = partitions(place, *DAYS)
    lance.write_dataset(some(-vectors[:20], ROWS), place, mode="append")
    found, rows = indexed(partitions(place, *DAYS), -vectors[7], 1)
    assert (found[0]["number"], rows) == (ROWS + 7, ROWS + 20)
    lance.dataset(place).delete("number = 3")
    assert nearest(before, "embedding", vectors[3], 1).matches[0]["number"] == 3
    assert nearest(partitions(place, *DAYS), "embedding", vectors[3], 1).matches[0]["number"] != 3


@pytest.mark.parametrize(
    ("metric", "exact", "expected"), [("cosine", False, False), ("cosine", True, True), ("l2", False, True)]
)
def test_the_result_says_whether_every_row_was_compared(
    place: str, vectors: np.ndarray, metric: str, exact: bool, expected: bool
) -> None:
    index(place, metric)
    found = scan.fn(partitions(place, *DAYS), "embedding", vectors[3], 5, exact)
    assert (found["exact"], found["rows"], found["matches"][0]["number"]) == (expected, ROWS, 3)
    assert found["rows_without_embedding"] == (0 if expected else None)
