"""The columns of matches that a person wants to see: texts, numbers, truth values and times, not lists or bytes.

Read afterwards, from the row groups where the matches lie: the scan itself reads no more than embeddings and names.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from tasks.search.nearest import File, Match

BATCH_ROWS = 1024


def described(matches: tuple[Match, ...]) -> list[dict[str, Any]]:
    """Of each match `partition`, `row_id`, `score` and its other plain columns, in the order of `matches`."""
    columns: dict[Match, dict[str, Any]] = {}
    by_place = sorted(matches, key=lambda match: (match.file.place.template, match.row))
    for file, group in groupby(by_place, key=lambda match: match.file):
        some = list(group)
        columns |= zip(some, _rows(file, [match.row for match in some]), strict=True)
    return [
        {"partition": match.file.partition, "row_id": match.row_id, "score": match.score}
        | {name: value for name, value in columns[match].items() if name not in ("partition", "row_id", "score")}
        for match in matches
    ]


def _rows(file: File, wanted: list[int]) -> Iterator[dict[str, Any]]:
    """The plain columns of the rows at these places of a file, which ascend."""
    with file.place.open() as opened:
        table = pq.ParquetFile(opened)
        names = [field.name for field in table.schema_arrow if _is_plain(field.type)]
        first = 0
        for group in range(table.num_row_groups):
            after = first + table.metadata.row_group(group).num_rows
            if any(first <= row < after for row in wanted):
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=names):
                    places = [row - first for row in wanted if first <= row < first + len(batch)]
                    yield from batch.take(pa.array(places, pa.int64())).to_pylist()
                    first += len(batch)
            first = after


def _is_plain(kind: pa.DataType) -> bool:
    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return is_text or is_number or types.is_boolean(kind) or types.is_temporal(kind)
