"""A small file for each kind of source that holds, or unpacks to, a value of more than a gigabyte."""

import gzip
import os
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import google_crc32c
import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake

from overnight.tasks.config.memory_bound import bounded
from tests.bombs import MOST_BYTES
from tests.contracts.sources.adapter import ROWS
from tests.contracts.sources.adapters import iceberg
from tests.contracts.sources.adapters.job import publish
from tests.contracts.sources.reading import read_all
from tests.contracts.sources.suite import SOURCES

BYTES = 2**30 - 2**20  # just below the limits of rows and files
PIECE = 2**24
TOO_MUCH = "data that take at most 640 MiB of memory"


@dataclass(frozen=True)
class Bomb:
    """`write` adds it to a folder with a whole file. `words`: of the reason of what is lost. `most_bytes`: of memory.

    Lance's library ends the process instead: then the file costs itself as each that ends its reader.
    """

    write: Callable[[Path], object]
    words: str = TOO_MUCH
    ends_process: bool = False
    most_bytes: int = MOST_BYTES


def packed(path: Path, beginning: bytes, count: int = BYTES) -> None:
    """Write `beginning` and `count` letters, in parts that gzip unpacks one after another."""
    part = gzip.compress(b"a" * PIECE, 1, mtime=0)
    path.write_bytes(gzip.compress(beginning) + part * (count // PIECE) + gzip.compress(b"a" * (count % PIECE)))


def long_text() -> pa.Table:
    """Rows as the adapters have them, one of which has a text of a gigabyte."""
    texts = pa.array(["row 0", "a" * BYTES, "row 2"], pa.string())
    return pa.table({"n": pa.array(range(3), pa.int64()), "text": texts})


def hole(name: str) -> Bomb:
    """A file of a gigabyte that takes nothing on its disk."""

    def write(folder: Path) -> None:
        path = folder / name
        path.touch()
        os.truncate(path, BYTES)

    return Bomb(write)


def parquet(folder: Path) -> None:
    pq.write_table(long_text(), folder / "bomb.parquet", compression="zstd")


def long_list() -> pa.Table:
    """Two rows, one of which has a list of a gigabyte."""
    numbers = pa.ListArray.from_arrays([0, 1, BYTES // 8 + 1], np.zeros(BYTES // 8 + 1, np.int64))
    return pa.table({"n": pa.array(range(2), pa.int64()), "list": numbers})


def iceberg_file(folder: Path) -> None:
    parquet(folder)
    iceberg.table_in(folder).add_files([f"file://{folder}/bomb.parquet"])


def parquet_lists(folder: Path) -> None:
    pq.write_table(long_list(), folder / "bomb.parquet", compression="zstd", use_dictionary=False)


def delta(folder: Path) -> None:
    options = {"mode": "append", "schema_mode": "merge", "writer_properties": WriterProperties(compression="ZSTD")}
    write_deltalake(folder, long_list(), **options)


def arrow(folder: Path) -> None:
    datasets.Dataset(long_text().slice(0, 1)).save_to_disk(folder / "bomb")
    file = folder / "bomb/data-00000-of-00001.arrow"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(file, long_text().schema, options=options) as writer:
        writer.write_table(long_text())


def shard(folder: Path) -> None:
    member = tarfile.TarInfo("bomb/0.txt")
    member.size = BYTES
    end = bytes(-BYTES % 512 + 1024)
    packed(folder / "bomb.tar.gz", member.tobuf())
    with (folder / "bomb.tar.gz").open("ab") as file:
        file.write(gzip.compress(end))


def records(folder: Path) -> None:
    length = BYTES.to_bytes(8, "little")
    crc = google_crc32c.value(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    packed(folder / "bomb.tfrecord.gz", length + masked.to_bytes(4, "little"), BYTES + 4)


def archive(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name in ("n", "text"):
            with file.open(f"{name}.npy", "w") as member:
                shape = (1, BYTES) if name == "text" else (1,)
                np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": shape})
                for start in range(0, shape[-1], PIECE):
                    member.write(bytes(min(PIECE, shape[-1] - start)))


def database(folder: Path) -> None:
    with sqlite3.connect(folder / "rows.db") as connection:
        connection.execute("UPDATE rows SET text = zeroblob(900000000) WHERE n = 4")


def uris(folder: Path) -> None:
    hole("content.bin").write(folder.parent)
    (folder / "bomb.jsonl").write_text(f'{{"uri": "{folder.parent}/content.bin", "n": 1}}\n')


def lance_table(folder: Path) -> None:
    field = pa.field("text", pa.string(), metadata={"lance-encoding:compression": "zstd"})
    table = long_text().cast(pa.schema([pa.field("n", pa.int64()), field]))
    lance.write_dataset(table, folder / "table.lance", mode="append", data_storage_version="2.2")


BOMBS = {
    "audio": [hole("bomb.wav")],
    "csv": [Bomb(lambda folder: packed(folder / "bomb.csv.gz", b"n,text\n1,"), "expected a line of at most")],
    # PyArrow's allocator keeps what the first try took, beside the second try for each row.
    "delta": [Bomb(delta, most_bytes=MOST_BYTES * 3 // 2)],
    "huggingface": [Bomb(arrow)],
    "iceberg": [Bomb(iceberg_file)],
    "images": [hole("bomb.png")],
    "job": [Bomb(lambda folder: (parquet(folder), publish(folder)))],
    "jsonl": [Bomb(lambda folder: packed(folder / "bomb.jsonl.gz", b'{"n":1,"text":"'), "expected a line of at most")],
    "lance": [Bomb(lance_table, "memory allocation of 1", ends_process=True)],
    "numpy": [Bomb(archive)],
    "parquet": [Bomb(parquet), Bomb(parquet_lists)],
    "pdf": [hole("bomb.pdf")],
    "sql": [Bomb(database)],
    "text": [hole("bomb.txt")],
    "tfrecord": [Bomb(records)],
    "uris": [Bomb(uris)],
    "video": [hole("bomb.mp4")],
    "webdataset": [Bomb(shard)],
}


def reading(kind: str, small: str, folder: str) -> Iterator[dict[str, Any]]:
    """Read small data, and then `folder`. Yield the ids of the good rows there, and the reasons of the bad."""
    leaf = SOURCES.adapters[kind]
    Path(small).mkdir()
    leaf.write(Path(small), "a", leaf.rows(ROWS))
    with bounded():
        assert len(read_all(leaf.source(Path(small))).good) == ROWS
    yield {}
    read = read_all(leaf.source(Path(folder)))
    yield {"good": list(read.good), "bad": read.bad}
