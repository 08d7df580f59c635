"""Exact nearest neighbours by cosine similarity: one DuckDB query over a stream of published rows, in constant memory.

A row's score does not depend on the rows beside it. One process compares a million embeddings of 384 numbers in 15 s
from a local disk; a cluster would hardly have started by then.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import is_list, is_text

if TYPE_CHECKING:
    from overnight.tasks.search.ann import LanceTable

NEAREST = """
    SELECT count(*), count(*) FILTER (NOT isfinite(score)),
        min({{distance: -score, partition: partition, row_id: row_id, number: number, score: score}},
            $count) FILTER (isfinite(score))
    FROM (
        SELECT *, round(array_cosine_similarity(embedding, $query::DOUBLE[{width}]), 12) AS score FROM published
    )
"""
IS_PLAIN = (is_text, types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_temporal)


@dataclass(frozen=True)
class PublishedPartition:
    """The published rows of a partition. `read` is `Sink.read` of its receipt: it takes the columns, None for all.

    `table` is the Lance table that contains the rows, if they are in one.
    """

    partition: str
    read: Callable[[list[str] | None], Iterator[pa.Table]]
    table: "LanceTable | None" = None

    def schema(self) -> pa.Schema:
        """Return the columns of the rows; none if there are no rows."""
        return next((table.schema for table in self.read(None)), pa.schema([]))

    def numbered(self, columns: list[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows as tables, each with the number of its first row."""
        first = 0
        for table in self.read(columns):
            yield first, table
            first += len(table)

    def add_columns(self, matches: Mapping[int, dict[str, Any]]) -> None:
        """Add the plain columns of their rows to the matches, whose keys are the numbers of the rows."""
        last = max(matches)
        for first, table in self.numbered(plain_columns(self.schema())):
            for number in matches.keys() & range(first, first + len(table)):
                [row] = table.slice(number - first, 1).to_pylist()
                matches[number].update(row | matches[number])
            if first + len(table) > last:
                return


@dataclass(frozen=True)
class Found:
    """The matches, best first, the number of all rows, and of rows whose embedding is null, zero or contains NaN.

    A match is a dict: `partition`, `row_id` and `score` first, then the row's other plain columns. `numbers` has each
    match's 0-based place in its partition. `rows_without_embedding` is None if they were not counted.
    """

    matches: list[dict[str, Any]]
    numbers: list[int]
    rows: int
    rows_without_embedding: int | None


def nearest(published: Sequence[PublishedPartition], column: str, query: np.ndarray, count: int) -> Found:
    """Return the `count` published rows whose embedding in `column` is most similar to `query` (D numbers).

    Raise `ContractError` if the column is missing or has no embeddings of D numbers, or if the query is all zeros.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for partition in published:
            day, schema = partition.partition, partition.schema()
            if len(schema):
                require(schema, [column, "row_id"], f"partition {day}")
                for first, table in partition.numbered([column, "row_id"]):
                    yield comparable(table, column, query.size, f"partition {day}", day, first)

    result = compared(batches(), query, count)
    for partition in published:
        matches: dict[int, dict[str, Any]] = {}
        for match, number in zip(result.matches, result.numbers, strict=True):
            if match["partition"] == partition.partition:
                matches[number] = match
        if matches:
            partition.add_columns(matches)
    return result


def require(schema: pa.Schema, columns: Sequence[str], place: str) -> None:
    """Raise `ContractError`, which names `place`, if the schema lacks one of the columns."""
    for name in columns:
        if name not in schema.names:
            names = ", ".join(schema.names)
            raise ContractError(f"{place}: expected a column {name}, found {names}.")


def comparable(table: pa.Table, column: str, width: int, place: str, partition: Any, first: int = 0) -> pa.RecordBatch:
    """Return the rows for `compared`, numbered from `first`. A row without an embedding gets one of NaN.

    Raise `ContractError`, which names `place`, for embeddings of another length, or values of another type.
    """
    embeddings = table[column].combine_chunks()
    kind = embeddings.type
    if not is_list(kind) or not types.is_floating(kind.value_type):
        content = f"lists of floating-point numbers in {column}"
        raise ContractError(f"{place}: expected {content}, found {kind}.")
    present = embeddings.drop_null()
    lengths = pc.unique(pc.list_value_length(present)).to_pylist()
    if set(lengths) - {width}:
        raise ContractError(
            f"{place}: expected embeddings of {width} numbers in {column}, like the query's, found "
            f"{', '.join(map(str, sorted(lengths)))}. They come from another model: run the partition again."
        )
    vectors = np.full((len(table), width), np.nan)
    is_valid = embeddings.is_valid().to_numpy(zero_copy_only=False)
    vectors[is_valid] = present.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    if isinstance(partition, str):
        partition = pa.repeat(partition, len(table))
    columns = {"partition": partition, "row_id": table["row_id"].cast(pa.string()).combine_chunks()}
    columns["number"] = pa.array(first + np.arange(len(table)))
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(vectors.ravel(), width)
    return pa.record_batch(columns)


def direction(query: np.ndarray) -> np.ndarray:
    """Return the query as a float64 vector of length 1. Raise `ContractError` if its length is zero or not finite."""
    query = np.asarray(query, np.float64).reshape(-1)
    length = np.linalg.norm(query)
    if not np.isfinite(length) or not length:
        raise ContractError(
            f"the query's embedding has length {length:g}; cosine similarity needs one that is finite and not zero."
        )
    return query / length


def compared(batches: Iterable[pa.RecordBatch], query: np.ndarray, count: int) -> Found:
    """Return the best rows of batches from `comparable`. Equal scores are in the order of `partition` and `row_id`."""
    import duckdb

    vector, failures = direction(query), list[BaseException]()
    names = {"partition": pa.string(), "row_id": pa.string(), "number": pa.int64()}
    schema = pa.schema([*names.items(), ("embedding", pa.list_(pa.float64(), vector.size))])

    def read() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except (Exception, KeyboardInterrupt) as error:  # DuckDB raises one of its own
            failures.append(error)
            raise

    with contextlib.closing(duckdb.connect()) as database:
        database.register("published", pa.RecordBatchReader.from_batches(schema, read()))
        try:
            values = {"query": vector.tolist(), "count": count}
            statement = NEAREST.format(width=vector.size)
            [(rows, without, best)] = database.execute(statement, values).fetchall()
        except duckdb.Error as error:
            raise (failures or [error])[0] from None
    result = Found([], [], rows, without)
    for row in best or ():
        result.numbers.append(row.pop("number"))
        del row["distance"]
        result.matches.append(row)
    return result


def plain_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns of texts, numbers, truth values and times."""
    return [field.name for field in schema if any(is_kind(field.type) for is_kind in IS_PLAIN)]
