"""A whole source of every kind, with five units or more."""

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from overnight.tasks.ingest.source import FileSource, Source
from overnight.tasks.ingest.sources.media_files import Audio, Images, Pdf, Video
from overnight.tasks.ingest.sources.sql import Sql
from overnight.tasks.ingest.sources.uris import Uris
from tests.tasks.ingest import small_tables
from tests.tasks.ingest.hostile import archives, columns, texts
from tests.tasks.ingest.hostile.cases import Family

FAMILIES = texts.FAMILIES | columns.FAMILIES | archives.FAMILIES
UNITS = 5
ROWS = pa.table({"n": range(2 * UNITS), "text": [f"row {n}" for n in range(2 * UNITS)]})


def made(kind: str, folder: Path) -> Source:
    folder.mkdir()
    return MADE[kind](folder)


def _of_family(family: Family, folder: Path) -> Source:
    for number in range(UNITS):
        (folder / f"{number}.{family.extension}").write_bytes(family.whole)
    return family.source(path=str(folder), **family.settings)


def _of_files(source: type[FileSource], extension: str, folder: Path) -> Source:
    for number in range(UNITS):
        (folder / f"{number}.{extension}").write_bytes(b"bytes of no matter")
    return source(path=str(folder))


def _uris(folder: Path) -> Source:
    (folder / "files").mkdir()
    for number in range(UNITS):
        (folder / f"files/{number}.bin").write_bytes(b"bytes")
    (folder / "list.txt").write_text("".join(f"files/{number}.bin\n" for number in range(UNITS)))
    return Uris(path=str(folder / "list.txt"), content="bytes")


def _sql(folder: Path) -> Source:
    with contextlib.closing(sqlite3.connect(folder / "data.db")) as connection, connection:
        connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [tuple(row.values()) for row in ROWS.to_pylist()])
    return Sql(url=f"sqlite:///{folder}/data.db", query="SELECT * FROM t", key="n", rows_per_unit=2)


MADE: dict[str, Callable[[Path], Source]] = {
    **{kind: partial(_of_family, family) for kind, family in FAMILIES.items()},
    "images": partial(_of_files, Images, "png"),
    "audio": partial(_of_files, Audio, "wav"),
    "video": partial(_of_files, Video, "mp4"),
    "pdf": partial(_of_files, Pdf, "pdf"),
    "uris": _uris,
    "delta": partial(small_tables.delta, rows=ROWS, each=2),
    "lance": partial(small_tables.lance, rows=ROWS, each=2),
    "iceberg": partial(small_tables.iceberg, rows=ROWS, each=2),
    "sql": _sql,
}
