"""Tables of which one file is damaged: a file of data costs its own rows, and a file of the table's record the listing.

A file of data keeps its length: of another length it is refused before it is opened.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.sql import Sql
from overnight.tasks.storage.error_translation import translate_listing_errors
from tests.fuzz.mutations import Sample
from tests.fuzz.targets import READ, REFUSED, Found, Target, assert_own_words, rows_of
from tests.tasks.ingest import small_tables

ROWS = pa.table(
    {
        "n": range(6),
        "text": [f"row {n}" if n % 2 else None for n in range(6)],
        "list": [[n / 2] * (n % 3) for n in range(6)],
    }
)


def table_target(
    make: Callable[[Path], Source], file: str, is_record: bool = False, keeps_length: bool = False
) -> Callable[[Path], Target]:
    """The reader of a table. `file`: a pattern whose newest file is damaged; `is_record`: it holds no rows."""

    def made(folder: Path) -> Target:
        source = make(folder)
        assert len(_read(source).good) == len(ROWS)
        path = max(folder.glob(file), key=lambda path: path.stat().st_mtime_ns)
        whole = path.read_bytes()

        def run(sample: Sample) -> str:
            path.write_bytes(sample.content)
            try:
                found = _read(source)
            except InputError as error:
                if not is_record:
                    raise
                assert_own_words(str(error))
                return REFUSED
            finally:
                path.write_bytes(whole)
            return READ if found.good else REFUSED

        return Target((Sample(path.name, whole),), run, keeps_length)

    return made


def _read(source: Source) -> Found:
    """What a run reads of a table: the version is chosen first."""
    with translate_listing_errors(source.place("all")):
        snapshot = source.snapshot("all")
    chosen = source.at(snapshot) if snapshot else source
    return rows_of(chosen, chosen.units(list_inputs(chosen, "all")))


delta = partial(small_tables.delta, rows=ROWS, each=3)
lance = partial(small_tables.lance, rows=ROWS, each=3)
iceberg = partial(small_tables.iceberg, rows=ROWS, each=3)


def sqlite(folder: Path) -> Sql:
    """A table in a file of SQLite, whose pages are the smallest that there are."""
    with contextlib.closing(sqlite3.connect(folder / "data.db")) as connection, connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"row {n}") for n in range(6)])
    return Sql(url=f"sqlite:///{folder}/data.db", query="SELECT * FROM t", key="n")


TARGETS: dict[str, Callable[[Path], Target]] = {
    "delta": table_target(delta, "table/*.parquet", keeps_length=True),
    "delta-record": table_target(delta, "table/_delta_log/*.json", is_record=True),
    "lance": table_target(lance, "table.lance/data/*.lance", keeps_length=True),
    "lance-record": table_target(lance, "table.lance/_versions/*.manifest", is_record=True),
    "iceberg": table_target(iceberg, "**/*.parquet", keeps_length=True),
    "iceberg-record": table_target(iceberg, "**/*.metadata.json", is_record=True),
    "iceberg-list": table_target(iceberg, "**/snap-*.avro", is_record=True),
    "iceberg-files": table_target(iceberg, "**/*-m0.avro", is_record=True),
    "sql": table_target(sqlite, "data.db", is_record=True),
}
