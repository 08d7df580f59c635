"""Exact nearest neighbours by cosine similarity, streamed over published rows: constant memory for any size of table.

Each table of rows is one product of a matrix with a vector, in float64, so a row's score does not depend on where the
table ends. One process compares a million embeddings of 384 numbers in 15 s from a local disk; a cluster would hardly
have started by then. DuckDB's `list_cosine_similarity` fails for an embedding with a null, which is left out here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import is_list
from overnight.tasks.search.partition import PublishedPartition, plain_columns, require

DIGITS = 12


@dataclass(frozen=True)
class Match:
    """A published row: its 0-based place `row` in a partition, and its cosine to the query."""

    rows: PublishedPartition
    row: int
    row_id: str
    score: float

    def order(self) -> tuple[float, str, str, int]:
        """Return the key by which matches are sorted, the best first."""
        return -self.score, self.rows.partition, self.row_id, self.row


@dataclass(frozen=True)
class Found:
    """The matches, best first, the number of all rows, and of those whose embedding is null, zero or contains NaN."""

    matches: tuple[Match, ...] = ()
    rows: int = 0
    rows_without_embedding: int = 0


def nearest(published: Iterable[PublishedPartition], column: str, query: np.ndarray, count: int) -> Found:
    """Return the `count` published rows whose embedding in `column` is most similar to `query` (D numbers).

    Raise `ContractError` if the column is missing or has no embeddings of D numbers, or if the query is all zeros.
    """
    query, row_count, without = direction(query), 0, 0
    best: list[Match] = []
    for partition in published:
        source, first = f"partition {partition.partition}", 0
        schema = partition.schema()
        if not len(schema):
            continue
        require(schema, [column, "row_id"], source)
        for table in partition.read([column, "row_id"]):
            scores = cosines(table[column].combine_chunks(), query, source, column)
            is_usable = np.isfinite(scores)
            row_count, without = row_count + len(scores), without + int((~is_usable).sum())
            floor = best[-1].score if len(best) == count else -np.inf
            for row in np.flatnonzero(is_usable & (scores >= floor)).tolist():
                best.append(Match(partition, first + row, table["row_id"][row].as_py(), float(scores[row])))
            best = sorted(best, key=Match.order)[:count]
            first += len(scores)
    return Found(tuple(best), row_count, without)


def direction(query: np.ndarray) -> np.ndarray:
    """Return the query as a float64 vector of length 1. Raise `ContractError` if its length is zero or not finite."""
    query = np.asarray(query, np.float64).reshape(-1)
    length = np.linalg.norm(query)
    if not np.isfinite(length) or not length:
        raise ContractError(
            f"the query's embedding has length {length:g}; cosine similarity needs one that is finite and not zero."
        )
    return query / length


def cosines(embeddings: pa.Array, query: np.ndarray, place: str, column: str) -> np.ndarray:
    """Return the rounded cosine of each embedding with `query`, of length 1; NaN for a row without a usable embedding.

    Raise `ContractError`, which names `place`, for embeddings of another length, or values of another type.
    """
    kind = embeddings.type
    if not is_list(kind) or not types.is_floating(kind.value_type):
        raise ContractError(f"{place}: expected lists of floating-point numbers in {column}, found {kind}.")
    scores = np.full(len(embeddings), np.nan)
    present = embeddings.drop_null()
    lengths = pc.unique(pc.list_value_length(present)).to_pylist()
    if set(lengths) - {len(query)}:
        raise ContractError(
            f"{place}: expected embeddings of {len(query)} numbers in {column}, like the query's, found "
            f"{', '.join(map(str, sorted(lengths)))}. They come from another model: run the partition again."
        )
    vectors = present.flatten().to_numpy(zero_copy_only=False).astype(np.float64).reshape(-1, len(query))
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    with np.errstate(invalid="ignore", divide="ignore"):
        scores[embeddings.is_valid().to_numpy(zero_copy_only=False)] = np.round(vectors @ query / norms, DIGITS)
    return scores


def described(matches: tuple[Match, ...]) -> list[dict[str, Any]]:
    """Return each match as a dict: `partition`, `row_id`, `score` and its other plain columns, in the given order."""
    values: dict[Match, Mapping[str, Any]] = {}
    for partition in dict.fromkeys(match.rows for match in matches):
        own = {match.row: match for match in matches if match.rows is partition}
        first = 0
        for table in partition.read(plain_columns(partition.schema())):
            for row in own.keys() & range(first, first + len(table)):
                values[own[row]] = table.slice(row - first, 1).to_pylist()[0]
            first += len(table)
            if first > max(own):
                break
    return [with_score(match.rows.partition, match.row_id, match.score, values[match]) for match in matches]


def with_score(partition: str, row_id: str, score: float, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a match as a dict: `partition`, `row_id` and `score` first, then its columns of other names."""
    first = {"partition": partition, "row_id": row_id, "score": score}
    return {**first, **columns, **first}
