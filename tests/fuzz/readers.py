"""The sources of files: a damaged file alone, and behind a whole one that says what the columns are.

Every row of a unit is settled once, and a damaged file costs no row of another.
"""

import gzip
import io
import json
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.huggingface import HuggingFace
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.media_files import Audio, Images, Pdf, Video
from overnight.tasks.ingest.sources.numpy import Numpy
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.sources.tfrecord import TfRecord
from overnight.tasks.ingest.sources.uris import Uris
from overnight.tasks.ingest.sources.webdataset import WebDataset
from tests.fuzz.mutations import Sample
from tests.fuzz.targets import READ, REFUSED, Target, assert_own_words, rows_of
from tests.tasks.ingest.sources.test_tfrecord import example, record

FIRST = "0-whole"  # the name of the whole file, with the extension of the first sample


def source_target(
    source: Callable[..., FileSource], *samples: Sample, is_alone: bool = True, **settings: Any
) -> Callable[[Path], Target]:
    """The reader of a source. The first sample is the whole file; `is_alone`: half of the files are read without it."""

    def made(folder: Path) -> Target:
        read_from = source(path=str(folder), **settings)
        whole = f"{FIRST}.{samples[0].name.partition('.')[2]}"
        (folder / whole).write_bytes(samples[0].packed(samples[0].content))
        beside = [file for file in list_inputs(read_from, "all") if file.path == whole]
        units = read_from.units(beside)
        schema = read_from.common_schema(units)
        expected = rows_of(read_from, units, schema)
        assert expected.good
        assert not expected.bad

        def run(sample: Sample) -> str:
            path = folder / sample.name
            path.write_bytes(sample.content)
            try:
                files = list_inputs(read_from, "all")
                mine = [file for file in files if file.path == sample.name]
                if is_alone and zlib.crc32(sample.content) % 2:
                    found = rows_of(read_from, read_from.units(mine))
                else:
                    found = rows_of(read_from, read_from.units(beside + mine), schema)
                    assert found.good >= expected.good, "a damaged file costs a row of another one"
            finally:
                path.unlink()
            return READ if found.good - expected.good else REFUSED

        return Target(samples, run)

    return made


def lists_target(folder: Path) -> Target:
    """The reader of lists of URIs, which lie beside the list."""
    (folder / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / "in" / name).write_text(f"text {name}")
    source = Uris(path=str(folder / "in"), content="text", keep=["n"])
    plain = Uris(path=str(folder / "in"), content="text")
    table = pa.table({"uri": ["a.txt", "b.txt", None], "n": [1, 2, 3]})
    samples = (
        Sample("list.jsonl", b'{"uri": "a.txt", "n": 1}\n{"uri": "b.txt", "n": 2}\n{"uri": null}\n'),
        Sample("list.csv", b"uri,n\na.txt,1\nb.txt,2\n"),
        Sample("list.txt", b"a.txt\n\n b.txt\n"),
        Sample("list.parquet", parquet(table)),
    )

    def run(sample: Sample) -> str:
        path = folder / "in" / f"list-{sample.name}"
        path.write_bytes(sample.content)
        reads = plain if sample.name.endswith(".txt") else source
        try:
            files = [file for file in list_inputs(reads, "all") if file.path.startswith(path.name)]
            found = rows_of(reads, reads.units(files))
        except InputError as error:  # a list is no data: before the run begins, its fault is told
            assert_own_words(str(error))
            return REFUSED
        finally:
            path.unlink()
        return READ if found.good else REFUSED

    return Target(samples, run)


def parquet(table: pa.Table, **settings: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **settings)
    return file.getvalue()


def _columns(count: int) -> dict[str, Any]:
    numbers = range(count)
    return {
        "n": numbers,
        "text": [f"row {n % 3}" if n % 4 else None for n in numbers],
        "list": [[n / 2] * (n % 3) for n in numbers],
        "struct": [{"a": n, "b": str(n)} for n in numbers],
        "at": pa.array([n * 86_400_000_000 for n in numbers], pa.timestamp("us")),
        "flag": [n % 2 == 0 for n in numbers],
    }


def parquet_files() -> tuple[Sample, ...]:
    table = pa.table(_columns(12))
    plain = {"compression": "none", "use_dictionary": False}
    delta = {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}}
    flat = table.select(["n", "text"])
    return (
        Sample("a.parquet", parquet(table)),
        Sample("plain.parquet", parquet(table, **plain, store_schema=False)),
        Sample("groups.parquet", parquet(table, row_group_size=5, compression="gzip")),
        Sample("delta.parquet", parquet(flat, **delta, data_page_version="2.0", compression="zstd")),
        Sample("int96.parquet", parquet(table.select(["n", "at"]), use_deprecated_int96_timestamps=True, **plain)),
        Sample("none.parquet", parquet(flat[:0])),
    )


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


def shards() -> tuple[Sample, ...]:
    members = {f"{n}.{kind}": content for n in range(3) for kind, content in [("cls", b"%d" % n), ("txt", b"text")]}
    long = {"a" * 120 + "/1.txt": b"long", "grüße.json": b"{}", "__meta.txt": b"none"}
    plain = tar(members)
    return (
        Sample("a.tar", plain),
        Sample("sums.tar", plain, with_tar_sums),
        Sample("gnu.tar", tar(long, tarfile.GNU_FORMAT), with_tar_sums),
        Sample("pax.tar", tar(long, tarfile.PAX_FORMAT), with_tar_sums),
        Sample("packed.tar.gz", plain, packed),
        Sample("torn.tgz", packed(plain)),
    )


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def records() -> tuple[Sample, ...]:
    one = example(n=7, text=b"text", numbers=[1.5, 2.5], none=[])
    three = [example(n=n, text=b"t%d" % n, many=[1, 2, 3]) for n in range(3)]
    return (
        Sample("a.tfrecord", b"".join(map(record, three))),
        Sample("sums.tfrecord", one, lambda content: record(one) + record(content) + record(one)),
        Sample("packed.tfrecord.gz", b"".join(map(record, three)), packed),
        Sample("torn.tfrecords", packed(record(one))),
    )


def npy(values: np.ndarray, **settings: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values, **settings)
    return file.getvalue()


def _archive(method: int) -> Callable[[bytes], bytes]:
    def made(content: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr(zipfile.ZipInfo("a.npy"), npy(np.arange(4)), method)
            archive.writestr(zipfile.ZipInfo("b.npy"), content, method)
        return file.getvalue()

    return made


def arrays() -> tuple[Sample, ...]:
    floats = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    fields = np.array([(1, 2.5, b"ab"), (3, 4.5, b"cd")], [("n", "i4"), ("x", "f8"), ("s", "S2")])
    times = np.array(["2026-01-01", "NaT"], "M8[D]")
    return (
        Sample("a.npy", npy(floats)),
        Sample("fortran.npy", npy(np.asfortranarray(floats))),
        Sample("fields.npy", npy(fields)),
        Sample("times.npy", npy(times)),
        Sample("texts.npy", npy(np.array(["one", "two"]), version=(2, 0))),
        Sample("halves.npy", npy(np.arange(5, dtype=">f2"))),
        Sample("stored.npz", npy(np.arange(4.0)), _archive(zipfile.ZIP_STORED)),
        Sample("packed.npz", npy(floats), _archive(zipfile.ZIP_DEFLATED)),
        Sample("raw.npz", _archive(zipfile.ZIP_DEFLATED)(npy(np.arange(4.0)))),
        Sample("bz2.npz", _archive(zipfile.ZIP_BZIP2)(npy(np.arange(4.0)))),
        Sample("lzma.npz", _archive(zipfile.ZIP_LZMA)(npy(np.arange(4.0)))),
    )


def arrow() -> tuple[Sample, ...]:
    """Streams as `datasets` writes them, with its types and without."""
    table = pa.table({**_columns(9), "image": [{"bytes": b"\x89PNG", "path": None}] * 9, "d": pa.array([1] * 9)})
    table = table.append_column("word", pa.array(["a", "b", "a"] * 3).dictionary_encode())
    table = table.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": {}}}).encode()})

    def stream(**settings: Any) -> bytes:
        file = io.BytesIO()
        with pa.ipc.new_stream(file, table.schema, options=pa.ipc.IpcWriteOptions(**settings)) as writer:
            writer.write_table(table, max_chunksize=5)
        return file.getvalue()

    return (
        Sample("a.arrow", stream()),
        Sample("lz4.arrow", stream(compression="lz4")),
        Sample("zstd.arrow", stream(compression="zstd")),
    )


LINES = b'{"n": 1, "text": "one", "list": [1, 2], "deep": {"a": null}}\n{"n": -2.5, "text": null}\n\n{"x": true}\n'
DOCUMENT = b'[\n{"n": 1, "text": "one"},\n {"n": 18446744073709551616, "at": "2026-01-01"}\n]\n'
ROWS = b'n,text,at,flag\n1,one,2026-01-01,true\n2,"two, ""quoted""\nlines",2026-01-02,false\n3,,2026-01-03,true\n'
FILE = b"\x89PNG\r\n\x1a\n a file whose bytes nobody looks at"

TARGETS: dict[str, Callable[[Path], Target]] = {
    "text": source_target(Text, Sample("a.txt", "A text, grüße.\n".encode()), Sample("b.md", b"\xef\xbb\xbf# Mark")),
    "jsonl": source_target(
        Jsonl,
        Sample("a.jsonl", LINES),
        Sample("b.json", DOCUMENT),
        Sample("c.json", b'{"n": 1}{"n": 2.25}\n{"n": 12345678901234567890123}'),
        Sample("d.jsonl.gz", LINES, packed),
        Sample("e.jsonl.gz", packed(LINES)),
    ),
    "jsonl-types": source_target(
        Jsonl, Sample("a.jsonl", LINES), is_alone=False, types={"n": "float64", "text": "string"}
    ),
    "csv": source_target(
        Csv,
        Sample("a.csv", ROWS),
        Sample("b.tsv", ROWS.replace(b",", b"\t")),
        Sample("c.csv", b"n;text\r\n1;2\r\n"),
        Sample("d.csv.gz", ROWS, packed),
        Sample("e.csv.gz", packed(ROWS)),
    ),
    "csv-types": source_target(
        Csv,
        Sample("a.csv", ROWS),
        is_alone=False,
        types={"n": "int32", "at": "date32", "flag": "bool", "text": "string"},
    ),
    "parquet": source_target(Parquet, *parquet_files()),
    "webdataset": source_target(WebDataset, *shards()),
    "webdataset-columns": source_target(WebDataset, *shards()[:2], columns={"label": "cls;cls2", "words": "txt"}),
    "tfrecord": source_target(TfRecord, *records(), texts=["text"]),
    "numpy": source_target(Numpy, *arrays()),
    "huggingface": source_target(HuggingFace, *arrow()),
    "uris": lists_target,
    "images": source_target(Images, Sample("a.png", FILE), label_from="parent"),
    "audio": source_target(Audio, Sample("a.wav", FILE)),
    "video": source_target(Video, Sample("a.mp4", FILE)),
    "pdf": source_target(Pdf, Sample("a.pdf", FILE)),
}
