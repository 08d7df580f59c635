"""Compare Parquet files with pyarrow, which reads a whole file, and with DuckDB, which has a reader of its own."""

import decimal
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ours
import pyarrow.parquet as pq
from judging import is_like, unlike
from kind import Kind, ends_in

from overnight.tasks.ingest.sources.parquet import Parquet

CORPORA = ("parquet-testing", "arrow-testing/data/parquet")


def read(path: Path) -> list[Any]:
    """Return the rows as dicts."""
    return ours.values(Parquet, path, ours.plain_rows)


def by_pyarrow(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, with verified checksums, and with INT96 times in microseconds, as in Overnight."""
    with pq.ParquetFile(path, page_checksum_verification=True, coerce_int96_timestamp_unit="us") as file:
        yield from ours.plain_rows(file.read())


def by_duckdb(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows as DuckDB exports them to Arrow."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute("SELECT * FROM read_parquet(?)", [str(path)])
        yield from ours.plain_rows(found.to_arrow_table())


def differs_from_duckdb(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """Return how the values differ, without regard to the names of their types."""
    return "" if is_like(_plain(mine), _plain(other)) else unlike(mine, other)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, decimal.Decimal):
        return str(value.normalize())
    if isinstance(value, float) and not math.isnan(value):
        return value + 0.0
    return value


CHOOSE = ends_in(*Parquet.extensions)
KIND = Kind("Parquet", CORPORA, CHOOSE, read, by_pyarrow)
BY_DUCKDB = Kind("Parquet, by DuckDB", CORPORA, CHOOSE, read, by_duckdb, differs_from_duckdb, "duckdb")
