"""The sources, on files that the adapters of the contract suite write.

A damaged file is read alone, behind a whole one that says what the columns are, or among the files of its table. Every
row of a unit is settled once, and a damaged file costs no row of another.
"""

import contextlib
import gzip
import io
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.iceberg import Iceberg
from overnight.tasks.storage.error_translation import translate_listing_errors
from tests.contracts.sources.adapter import Adapter
from tests.contracts.sources.adapters.iceberg import table_in
from tests.contracts.sources.adapters.tfrecord import example, record
from tests.contracts.sources.suite import SOURCES
from tests.fuzz.mutations import Sample
from tests.fuzz.targets import READ, REFUSED, Found, Target, assert_own_words, rows_of

WHOLE = "0-whole"  # the name of the whole file, without its extension
PACKED = ("csv", "jsonl", "tfrecord", "webdataset")  # kinds whose files may be packed
MANY = 8  # columns: of more, every fifth is in the corpus


def of_files(kind: str, is_alone: bool = True, is_list: bool = False, **settings: Any) -> Callable[[Path], Target]:
    """The reader of files of a kind. `is_alone`: half of the files are read without the whole one.

    `is_list`: a file is no data, so that its fault is an error before the run begins.
    """

    def made(folder: Path) -> Target:
        leaf = SOURCES.adapters[kind]
        samples = corpus(leaf, folder.with_name(f"{folder.name}-corpus"))
        source = leaf.source(folder, **settings)
        whole = folder / f"{WHOLE}.{samples[0].name.partition('.')[2]}"
        whole.write_bytes(samples[0].content)
        beside = [file for file in list_inputs(source, "all") if file.path.startswith(whole.name)]
        units = source.units(beside)
        schema = source.common_schema(units)
        expected = rows_of(source, units, schema)
        assert expected.good
        assert not expected.bad

        def run(sample: Sample) -> str:
            path = folder / sample.name
            path.write_bytes(sample.content)
            try:
                mine = [file for file in list_inputs(source, "all") if file.path.startswith(sample.name)]
                if is_alone and zlib.crc32(sample.content) % 2:
                    found = rows_of(source, source.units(mine))
                else:
                    found = rows_of(source, source.units(beside + mine), schema)
                    assert found.good >= expected.good, "a damaged file costs a row of another one"
            except InputError as error:
                if not is_list:
                    raise
                assert_own_words(str(error))
                return REFUSED
            finally:
                path.unlink()
            return READ if found.good - expected.good else REFUSED

        return Target(samples, run)

    return made


def of_table(kind: str, file: str, is_record: bool = False, keeps_length: bool = False) -> Callable[[Path], Target]:
    """The reader of a table. `file`: a pattern whose newest file is damaged; `is_record`: it holds no rows."""

    def made(folder: Path) -> Target:
        leaf = SOURCES.adapters[kind]
        rows = leaf.rows(6)
        if kind == "sql":
            with contextlib.closing(sqlite3.connect(folder / "rows.db")) as database:
                database.execute("PRAGMA page_size = 512")  # the smallest
                database.execute("VACUUM")
        else:
            rows = rows.append_column("list", pa.array([[number / 2] * (number % 3) for number in range(6)]))
        for first in (0, 3):
            leaf.write(folder, "", rows.slice(first, 3))
        source: Source = leaf.source(folder)
        if kind == "iceberg":
            source = Iceberg(table=table_in(folder).metadata_location.removeprefix("file://"))
        assert len(_read(source).good) == len(rows)
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


def corpus(leaf: Adapter, folder: Path) -> list[Sample]:
    """Files that the adapter writes, first rows and then edge values; packed ones; and what `MORE` makes besides."""
    values = leaf.values
    if values.num_columns > MANY:
        values = values.select(values.column_names[::5])
    samples = []
    for name, rows in (("rows", leaf.rows(1 if leaf.rows_are_files else 5)), ("values", values)):
        path = leaf.write(folder, name, rows)
        samples.append(Sample(f"{name}{path.suffix}", path.read_bytes()))
    if leaf.kind in PACKED:
        for whole in list(samples):
            samples += [Sample(f"{whole.name}.gz", whole.content, packed)]
        samples += [Sample(f"torn{path.suffix}.gz", packed(samples[0].content))]
    return samples + MORE.get(leaf.kind, list)()


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def parquet(table: pa.Table, **settings: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **settings)
    return file.getvalue()


def parquet_files() -> list[Sample]:
    numbers = range(12)
    flat = pa.table({"n": numbers, "text": [f"row {n % 3}" if n % 4 else None for n in numbers]})
    times = flat.append_column("at", pa.array(numbers, pa.timestamp("us")))
    delta = {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}}
    return [
        Sample("groups.parquet", parquet(times, row_group_size=5, compression="gzip")),
        Sample("delta.parquet", parquet(flat, **delta, data_page_version="2.0", compression="zstd")),
        Sample("int96.parquet", parquet(times, use_deprecated_int96_timestamps=True, store_schema=False)),
        Sample("none.parquet", parquet(flat[:0])),
    ]


def tar(members: Mapping[str, bytes], kind: int = tarfile.USTAR_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    ends = len(file.getvalue().rstrip(b"\0")) + 512
    return file.getvalue()[: ends - ends % 512 + 1024]  # without most of the empty end


def with_tar_sums(content: bytes) -> bytes:
    """The archive with right check sums in whatever looks like a header."""
    blocks = [bytearray(content[start : start + 512]) for start in range(0, len(content), 512)]
    for block in blocks:
        if block[257:262] == b"ustar":
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
    return b"".join(blocks)


def shards() -> list[Sample]:
    members = {f"{n}.{kind}": content for n in range(3) for kind, content in [("cls", b"%d" % n), ("txt", b"text")]}
    long = {"a" * 120 + "/1.txt": b"long", "grüße.json": b"{}", "__meta.txt": b"none"}
    return [
        Sample("sums.tar", tar(members), with_tar_sums),
        Sample("gnu.tar", tar(long, tarfile.GNU_FORMAT), with_tar_sums),
        Sample("pax.tar", tar(long, tarfile.PAX_FORMAT), with_tar_sums),
    ]


def records() -> list[Sample]:
    one = example(n=7, text=b"text", numbers=[1.5, 2.5], none=[])
    return [Sample("sums.tfrecord", one, lambda content: record(one) + record(content) + record(one))]


def npy(values: np.ndarray, **settings: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values, **settings)
    return file.getvalue()


def _archive(method: int, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(zipfile.ZipInfo("a.npy"), npy(np.arange(4)), method)
        archive.writestr(zipfile.ZipInfo("b.npy"), content, method)
    return file.getvalue()


def arrays() -> list[Sample]:
    floats = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    alone = {
        "floats": npy(floats),
        "fortran": npy(np.asfortranarray(floats)),
        "fields": npy(np.array([(1, 2.5, b"ab"), (3, 4.5, b"cd")], [("n", "i4"), ("x", "f8"), ("s", "S2")])),
        "times": npy(np.array(["2026-01-01", "NaT"], "M8[D]")),
        "texts": npy(np.array(["one", "two"]), version=(2, 0)),
        "halves": npy(np.arange(5, dtype=">f2")),
    }
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    return [
        *(Sample(f"{name}.npy", content) for name, content in alone.items()),
        *(Sample(f"sums-{method}.npz", alone["floats"], partial(_archive, method)) for method in methods[:2]),
        *(Sample(f"raw-{method}.npz", _archive(method, npy(np.arange(4.0)))) for method in methods[1:]),
    ]


def streams() -> list[Sample]:
    words = pa.table({"n": range(9), "word": pa.array(["a", "b", "a"] * 3).dictionary_encode()})

    def stream(compression: str) -> bytes:
        file = io.BytesIO()
        with pa.ipc.new_stream(file, words.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(words, max_chunksize=5)
        return file.getvalue()

    return [Sample(f"{compression}.arrow", stream(compression)) for compression in ("lz4", "zstd")]


DOCUMENT = b'[\n{"n": 1, "text": "one"},\n {"n": 18446744073709551616, "at": "2026-01-01"}\n]\n'
LINES = b'{"n": 1, "list": [1, 2], "deep": {"a": null}}\n{"n": -2.5, "text": null}\n\n{"x": true}\n'
MORE: dict[str, Callable[[], list[Sample]]] = {
    "text": lambda: [Sample("b.md", b"\xef\xbb\xbf# Mark")],
    "jsonl": lambda: [
        Sample("document.json", DOCUMENT),
        Sample("objects.json", b'{"n": 1}{"n": 2.25}\n{"n": 12345678901234567890123}'),
        Sample("lines.jsonl", LINES),
    ],
    "csv": lambda: [
        Sample("quoted.csv", b'n,text\n1,one\n2,"two, ""quoted""\nlines"\n3,\n'),
        Sample("tabs.tsv", b"n\ttext\n1\tone\n"),
        Sample("other.csv", b"n;text\r\n1;2\r\n"),
    ],
    "uris": lambda: [
        Sample("list.csv", b"uri,n\na.txt,1\nb.txt,2\n"),
        Sample("list.parquet", parquet(pa.table({"uri": ["a.txt", "b.txt", None], "n": [1, 2, 3]}))),
    ],
    "parquet": parquet_files,
    "webdataset": shards,
    "tfrecord": records,
    "numpy": arrays,
    "huggingface": streams,
}
PLAIN = ("text", "jsonl", "csv", "parquet", "webdataset", "numpy", "huggingface", "images", "audio", "video", "pdf")
TARGETS: dict[str, Callable[[Path], Target]] = {
    **{kind: of_files(kind) for kind in PLAIN},
    "jsonl-types": of_files("jsonl", is_alone=False, types={"n": "float64", "text": "string"}),
    "csv-types": of_files("csv", is_alone=False, types={"n": "int32", "text": "string"}),
    "tfrecord": of_files("tfrecord", texts=["text"]),
    "webdataset-columns": of_files("webdataset", columns={"label": "cls;cls2", "words": "txt"}),
    "uris": of_files("uris", is_list=True),
    "delta": of_table("delta", "*.parquet", keeps_length=True),
    "delta-record": of_table("delta", "_delta_log/*.json", is_record=True),
    "lance": of_table("lance", "table.lance/data/*.lance", keeps_length=True),
    "lance-record": of_table("lance", "table.lance/_versions/*.manifest", is_record=True),
    "iceberg": of_table("iceberg", "**/*.parquet", keeps_length=True),
    "iceberg-record": of_table("iceberg", "**/*.metadata.json", is_record=True),
    "iceberg-list": of_table("iceberg", "**/snap-*.avro", is_record=True),
    "iceberg-files": of_table("iceberg", "**/*-m0.avro", is_record=True),
    "sql": of_table("sql", "rows.db", is_record=True),
}
