"""Exact nearest neighbours by cosine similarity, streamed over published rows: constant memory for any size of table.

In: rows with `row_id` and an embedding column, lists of numbers of one length. Out: the `count` rows with the greatest
cosine to the query, best first. If scores agree to 12 digits, the order is by partition, `row_id`, file and the row's
place in it. Rows whose embedding is null, zero or contains NaN are left out and counted.

There is no index: each batch is one product of a matrix with a vector, in float64. So the order is that of the exact
scores, and a row's score does not depend on where its batch ends. One process compares a million embeddings of 384
numbers in 15 s from a local disk (1.6 million: 25 s, 320 MB of memory as with 0.1 million). A cluster would hardly have
started by then. If a Lance table has an index, `ann.py` searches that instead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import is_list
from overnight.tasks.search.published_rows import Rows

BATCH_BYTES = 16 * 2**20  # of embeddings in memory at a time
DIGITS = 12


@dataclass(frozen=True)
class Match:
    """A published row that is similar to the query.

    `row` is its 0-based place in `rows`, and `score` is its cosine to the query.
    """

    rows: Rows
    row: int
    row_id: str
    score: float


@dataclass(frozen=True)
class Found:
    """The matches, best first, and the counts of a search.

    `rows` is the number of all rows. `rows_without_embedding` is the number of those without a usable embedding.
    """

    matches: tuple[Match, ...] = ()
    rows: int = 0
    rows_without_embedding: int = 0


def nearest(published: Iterable[Rows], column: str, query: np.ndarray, count: int) -> Found:
    """Return the `count` published rows that are most similar to `query` (D numbers), and the counts of the search.

    `column` has the embeddings of rows. Raise `ContractError` if the column is missing or has no embeddings of D
    numbers, or if the query is all zeros.
    """
    query, looked_at, without = direction(query), 0, 0
    best: list[Match] = []
    batch_rows = max(BATCH_BYTES // (8 * len(query)), 1)
    for rows in published:
        first = 0
        for batch in rows.batches([column, "row_id"], batch_rows):
            scores = cosines(batch[column], query, rows, column)
            usable = np.isfinite(scores)
            looked_at, without = looked_at + len(scores), without + int((~usable).sum())
            floor = best[-1].score if len(best) == count else -np.inf
            places = np.flatnonzero(usable & (scores >= floor))
            names = batch["row_id"].take(places).to_pylist()
            found = zip(places.tolist(), names, strict=True)
            best += [Match(rows, first + place, name, float(scores[place])) for place, name in found]
            best = sorted(best, key=_order)[:count]
            first += len(scores)
    return Found(tuple(best), looked_at, without)


def direction(query: np.ndarray) -> np.ndarray:
    """Return the query (D numbers) as a float64 vector of length 1.

    Raise `ContractError` if its length is zero or not finite.
    """
    query = np.asarray(query, np.float64).reshape(-1)
    length = np.linalg.norm(query)
    if not np.isfinite(length) or not length:
        raise ContractError(
            f"the query's embedding has length {length:g}; cosine similarity needs one that is finite and not zero."
        )
    return query / length


def _order(match: Match) -> tuple[float, str, str, str, int]:
    return -match.score, match.rows.partition, match.row_id, match.rows.place.template, match.row


def cosines(embeddings: pa.Array, query: np.ndarray, rows: Rows, column: str) -> np.ndarray:
    """Return the cosine of each row's embedding with `query` (float64), NaN for a row without a usable embedding.

    `query` has length 1. The cosines are rounded, so that they do not depend on the other rows of the batch. Messages
    name the place of `rows`, and `column`. Raise `ContractError` if the column has no embeddings, or embeddings of
    another length than `query`.
    """
    kind = embeddings.type
    if not is_list(kind) or not types.is_floating(kind.value_type):
        raise ContractError(f"{rows.place}: expected lists of floating-point numbers in {column}, found {kind}.")
    scores = np.full(len(embeddings), np.nan)
    present = embeddings.drop_null()
    lengths = pc.unique(pc.list_value_length(present)).to_pylist()
    if any(length != len(query) for length in lengths):
        raise ContractError(
            f"{rows.place}: expected embeddings of {len(query)} numbers in {column}, like the query's, found "
            f"{', '.join(map(str, sorted(lengths)))}. They come from another model: run the partition again."
        )
    vectors = present.flatten().to_numpy(zero_copy_only=False).astype(np.float64).reshape(-1, len(query))
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    with np.errstate(invalid="ignore", divide="ignore"):
        scores[embeddings.is_valid().to_numpy(zero_copy_only=False)] = np.round(vectors @ query / norms, DIGITS)
    return scores


def described(matches: tuple[Match, ...]) -> list[dict[str, Any]]:
    """Return each match as a dict: `partition`, `row_id`, `score` and its other plain columns, in the given order.

    Plain columns have texts, numbers, truth values or times.
    """
    columns: dict[Match, dict[str, Any]] = {}
    by_place = sorted(matches, key=lambda match: (match.rows.place.template, match.rows.partition, match.row))
    for rows, group in groupby(by_place, key=lambda match: match.rows):
        some = list(group)
        columns |= zip(some, rows.plain([match.row for match in some]), strict=True)
    return [with_score(match.rows.partition, match.row_id, match.score, columns[match]) for match in matches]


def with_score(partition: str, row_id: str, score: float, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a match as a dict: `partition`, `row_id` and `score` first, then the other columns of its row.

    A column of the row with one of these names is left out.
    """
    first = {"partition": partition, "row_id": row_id, "score": score}
    return first | {name: value for name, value in columns.items() if name not in first}
