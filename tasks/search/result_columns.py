"""The matches of a search with those of their columns that a person wants to see.

Read afterwards: the scan itself reads no more than embeddings and names.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from overnight.tasks.search.knn import Match


def described(matches: tuple[Match, ...]) -> list[dict[str, Any]]:
    """Of each match `partition`, `row_id`, `score` and its other plain columns, in the order of `matches`."""
    columns: dict[Match, dict[str, Any]] = {}
    by_place = sorted(matches, key=lambda match: (match.rows.place.template, match.rows.partition, match.row))
    for rows, group in groupby(by_place, key=lambda match: match.rows):
        some = list(group)
        columns |= zip(some, rows.plain([match.row for match in some]), strict=True)
    return [with_score(match.rows.partition, match.row_id, match.score, columns[match]) for match in matches]


def with_score(partition: str, row_id: str, score: float, columns: Mapping[str, Any]) -> dict[str, Any]:
    """A match as it is told; what tells of the search comes first, and hides columns of the same names."""
    first = {"partition": partition, "row_id": row_id, "score": score}
    return first | {name: value for name, value in columns.items() if name not in first}
