"""Find rows with equal values: a row's key is a digest of its values, and only the first row with each key stays.

A digest has 128 bits. The probability that two of 10^8 different rows have the same digest is 10^-23.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.duplicates.places import PLACES
from overnight.tasks.duplicates.values import encoded, joined

KEY_BYTES = 16
MEMORY = "1GB"  # of the database, which moves more to disk; a row takes 36 bytes there
ROWS_AT_ONCE = 2**20
FIRST_STAYS = """
    SELECT unit, row, place FROM keys
    QUALIFY row_number() OVER (PARTITION BY high, low ORDER BY unit, row, place) > 1
    ORDER BY unit, row, place
"""


@dataclass(frozen=True)
class Equal:
    """A rule that keeps the first of the rows with equal values in all `columns`, and drops the others."""

    columns: tuple[str, ...]

    def keys(self, table: pa.Table) -> pa.Array:
        """Return the digest of each row; null for a row whose `columns` are all null."""
        columns = [encoded(table[name], name) for name in self.columns]
        digests: list[bytes | None] = []
        for row in zip(*columns, strict=True):
            if row.count(None) == len(row):
                digests.append(None)
            else:
                digests.append(hashlib.blake2b(joined(row), digest_size=KEY_BYTES).digest())
        return pa.array(digests, pa.large_binary())

    def duplicates(self, keys: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows to drop, by DuckDB."""
        import duckdb

        with tempfile.TemporaryDirectory(prefix="overnight-keys-") as folder:
            settings: dict[str, str | bool | int | float | list[str]] = {
                "memory_limit": MEMORY,
                "temp_directory": folder,
                "threads": min(os.cpu_count() or 1, 4),
                "preserve_insertion_order": False,
            }
            with contextlib.closing(duckdb.connect(":memory:", config=settings)) as database:
                database.execute(
                    "CREATE TABLE keys (unit BIGINT, row BIGINT, place INTEGER, high UBIGINT, low UBIGINT)"
                )
                for table in keys:
                    database.register("batch", _halved(table))
                    database.execute("INSERT INTO keys SELECT * FROM batch")
                    database.unregister("batch")
                for batch in database.sql(FIRST_STAYS).to_arrow_reader(ROWS_AT_ONCE):
                    yield pa.Table.from_batches([batch]).cast(PLACES)


def _halved(table: pa.Table) -> pa.Table:
    """Return the rows that have a key, with the key as two numbers."""
    table = table.filter(pc.is_valid(table["key"]))
    numbers = np.frombuffer(b"".join(table["key"].to_pylist()), np.uint64).reshape(-1, 2)
    places = table.select(PLACES.names)
    return places.append_column("high", [numbers[:, 0].copy()]).append_column("low", [numbers[:, 1].copy()])
