"""Exact neighbours over files, against one matrix product with NumPy."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import ContractError, ServiceUnavailable
from overnight.tasks.search.knn import PublishedPartition, nearest
from overnight.tasks.storage.location import Location
from overnight.tasks.write import sink
from overnight.tasks.write.sinks.parquet import ParquetSink

WIDTH = 24
Table = tuple[list[PublishedPartition], np.ndarray]


def a_file(folder: Path, partition: str, name: str, vectors: np.ndarray, **columns: list) -> Path:
    place = folder / f"date={partition}" / f"{name}.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.list_(pa.float32(), vectors.shape[1])
    data = {"row_id": [f"{name}#{row}" for row in range(len(vectors))], "embedding": pa.array(list(vectors), kind)}
    pq.write_table(pa.table(data | columns), place, row_group_size=37)
    return place


def partition_of(*files: Path) -> PublishedPartition:
    folder, partition = files[0].parents[1], files[0].parent.name.removeprefix("date=")
    receipt = {"files": [str(file.relative_to(folder)) for file in files]}
    return PublishedPartition(partition, partial(ParquetSink(path="-").read, Location(str(folder)), receipt))


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    return vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Three files in two partitions, and all their vectors; a batch is 13 rows, so that none ends where a file does."""
    monkeypatch.setattr(sink, "ROWS_AT_ONCE", 13)
    vectors = np.random.default_rng(0).normal(size=(300, WIDTH)).astype(np.float32)
    cuts = (("2026-01-01", "a", 0, 100), ("2026-01-01", "b", 100, 190), ("2026-01-02", "c", 190, 300))
    files = [
        a_file(tmp_path, day, name, vectors[start:stop], number=list(range(start, stop)), other=[b"x"] * (stop - start))
        for day, name, start, stop in cuts
    ]
    return [partition_of(*files[:2]), partition_of(files[2])], vectors


@pytest.mark.parametrize("count", [1, 7, 300, 1000])
def test_the_nearest_rows_of_several_files_are_those_of_one_matrix_product(table: Table, count: int) -> None:
    files, vectors = table
    query = np.random.default_rng(1).normal(size=WIDTH)
    scores = cosines(vectors, query)
    best = np.argsort(-scores)[:count]
    found = nearest(files, "embedding", query, count)
    rows = found.matches
    assert [row["number"] for row in rows] == best.tolist()
    np.testing.assert_allclose([row["score"] for row in rows], scores[best], atol=1e-12)
    assert (found.rows, found.rows_without_embedding) == (300, 0)
    assert {row["partition"] for row in rows} <= {"2026-01-01", "2026-01-02"}
    assert set(rows[0]) == {"partition", "row_id", "score", "number"}  # neither bytes nor lists


def test_rows_without_an_embedding_to_compare_are_left_out_and_counted(tmp_path: Path) -> None:
    vectors = np.eye(6, WIDTH, dtype=np.float32)
    vectors[1] = np.nan
    vectors[2] = 0
    file = a_file(tmp_path, "2026-01-01", "a", vectors)
    table = pq.read_table(file, partitioning=None)
    cells = pa.array([None, *table["embedding"].to_pylist()[1:]], table["embedding"].type)
    pq.write_table(table.set_column(1, "embedding", cells), file)
    found = nearest([partition_of(file)], "embedding", np.eye(6, WIDTH)[3] + 0.1, 10)
    assert [match["row_id"] for match in found.matches] == ["a#3", "a#4", "a#5"]
    assert (found.rows, found.rows_without_embedding) == (6, 3)


def test_rows_that_are_equally_near_come_by_partition_and_name(table: Table, tmp_path: Path) -> None:
    files, vectors = table
    same = np.tile(vectors[5], (40, 1)) * np.arange(1, 41, dtype=np.float32)[:, None]
    copies = [partition_of(a_file(tmp_path, day, "z", same)) for day in ("2026-01-03", "2025-01-01")]
    found = nearest([*copies, *files], "embedding", vectors[5], 43)
    names = sorted(f"z#{row}" for row in range(40))
    expected = [("2025-01-01", name) for name in names] + [("2026-01-01", "a#5")] + [("2026-01-03", n) for n in names]
    assert [(match["partition"], match["row_id"]) for match in found.matches] == expected[:43]
    assert {match["score"] for match in found.matches} == {1.0}


@pytest.mark.parametrize("kind", [pa.list_(pa.float16(), 2), pa.large_list(pa.float64()), pa.list_(pa.float32())])
def test_embeddings_of_each_type_of_list_and_number_with_nulls_inside_are_compared(kind: pa.DataType) -> None:
    cells = [[1.0, 0.0], None, [1.0, None], [0.0, 0.0], [3.0, 3.0], [float("inf"), 0.0], [-2.0, 0.0]]
    rows = pa.table({"row_id": [f"{row}" for row in range(len(cells))], "embedding": pa.array(cells, kind)})
    tables = [rows[:2], rows[2:2], rows[2:]]
    partition = PublishedPartition(
        "all", lambda columns: iter([table.select(columns or rows.column_names) for table in tables])
    )
    found = nearest([partition], "embedding", np.array([1.0, 0.0]), 10)
    assert [(match["row_id"], match["score"]) for match in found.matches] == [
        ("0", 1.0),
        ("4", round(0.5**0.5, 12)),
        ("6", -1.0),
    ]
    assert (found.rows, found.rows_without_embedding) == (7, 4)


@pytest.mark.parametrize("error", [ServiceUnavailable("the bucket is away"), KeyboardInterrupt("by Ctrl-C")], ids=repr)
def test_an_error_of_the_storage_and_an_interrupt_are_raised_as_they_are(error: BaseException) -> None:
    def read(columns: list[str] | None) -> Iterator[pa.Table]:
        yield pa.table({"row_id": ["a"], "embedding": [[1.0, 0.0]]})
        if columns:
            raise error

    with pytest.raises(type(error), match=str(error)):
        nearest([PublishedPartition("all", read)], "embedding", np.array([1.0, 0.0]), 1)


def test_lists_without_a_fixed_size_are_compared_too(table: Table, tmp_path: Path) -> None:
    files, vectors = table
    file = tmp_path / "date=2026-01-01/a.parquet"
    plain = pq.read_table(file, partitioning=None)
    loose = plain.set_column(1, "embedding", plain["embedding"].cast(pa.list_(pa.float32())))
    pq.write_table(loose, file)
    assert nearest(files, "embedding", vectors[17], 1).matches[0]["row_id"] == "a#17"


def test_what_cannot_be_compared_is_an_error_that_names_partition_and_column(table: Table) -> None:
    files, vectors = table
    for column, query, message in (
        ("embedding", np.ones(5), "partition 2026-01-01: expected embeddings of 5 numbers in embedding.*found 24"),
        ("vector", vectors[0], "a column vector, found row_id, embedding, number, other"),
        ("number", vectors[0], "lists of floating-point numbers in number, found int64"),
        ("embedding", np.zeros(WIDTH), "the query's embedding has length 0"),
    ):
        with pytest.raises(ContractError, match=message):
            nearest(files, column, query, 1)
