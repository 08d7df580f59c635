"""Small tables of the kinds that keep versions, a file for each few rows, and their sources."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.ingest.sources.iceberg import Iceberg
from overnight.tasks.ingest.sources.lance import Lance


def delta(folder: Path, rows: pa.Table, each: int) -> Delta:
    from deltalake import write_deltalake

    for part in _parts(rows, each):
        write_deltalake(folder / "table", part, mode="append")
    return Delta(path=str(folder / "table"))


def lance(folder: Path, rows: pa.Table, each: int) -> Lance:
    from lance import write_dataset

    write_dataset(rows, folder / "table.lance", max_rows_per_file=each)
    return Lance(path=str(folder / "table.lance"))


def iceberg(folder: Path, rows: pa.Table, each: int) -> Iceberg:
    from pyiceberg.catalog import load_catalog

    settings = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    catalog = load_catalog("tests", **settings)
    catalog.create_namespace("a")
    table = catalog.create_table("a.b", schema=rows.schema)
    for part in _parts(rows, each):
        table.append(part)
    return Iceberg(table=table.metadata_location.removeprefix("file://"))


def _parts(rows: pa.Table, each: int) -> Iterator[pa.Table]:
    return (rows[start : start + each] for start in range(0, len(rows), each))
