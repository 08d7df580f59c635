"""Hostile files among whole ones, as the first that a source looks at and behind these: each costs itself alone.

A file is damaged, or declares what is not there, or would fill the memory of a reader that believes it. The files of a
kind are in its own tests: by their names the content, the rows that are good, and words of the reason for the rest.
"""

import gzip
import io
import re
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from overnight.tasks.ingest.formats import text_lines
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.huggingface import HuggingFace
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.numpy import Numpy
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.sources.tfrecord import TfRecord
from overnight.tasks.ingest.sources.webdataset import WebDataset
from tests.fuzz.child import forget_peak, peak_bytes
from tests.fuzz.targets import rows_of
from tests.tasks.ingest.conftest import read_all
from tests.tasks.ingest.sources import (
    test_csv,
    test_huggingface,
    test_jsonl,
    test_numpy,
    test_parquet,
    test_tfrecord,
    test_webdataset,
    test_whole_files,
)

WHOLES = 9  # more than a source looks at before it reads
PLACES = {"first": "0", "behind": "z"}
SECONDS, BYTES = 5.0, 128 * 2**20  # of the CPU, so that a busy machine does not count
BOMB_BYTES = 2**28
BOUND = {"max_row_bytes": 2**22}
Case = tuple[bytes, int, str]  # no words: the file is good after all


class Family(NamedTuple):
    """A kind, a whole file by its extension, the number of its rows, and the hostile ones."""

    source: type[FileSource]
    extension: str
    whole: bytes
    rows: int
    cases: Mapping[str, Case]
    settings: Mapping[str, Any] = {}


FAMILIES = {
    "text": Family(Text, "txt", b"well", 1, test_whole_files.HOSTILE),
    "csv": Family(Csv, "csv", test_csv.numbers(10), 10, test_csv.HOSTILE),
    "jsonl": Family(Jsonl, "jsonl", test_jsonl.MANY, 1500, test_jsonl.HOSTILE, BOUND),
    "parquet": Family(Parquet, "parquet", test_parquet.WHOLE, 300, test_parquet.HOSTILE),
    "huggingface": Family(HuggingFace, "arrow", test_huggingface.WHOLE, 300, test_huggingface.HOSTILE),
    "numpy": Family(Numpy, "npy", test_numpy.npy(np.arange(3)), 3, test_numpy.HOSTILE),
    "tfrecord": Family(
        TfRecord, "tfrecord", test_tfrecord.WHOLE, 10, test_tfrecord.HOSTILE, {"texts": ["name"], **BOUND}
    ),
    "webdataset": Family(WebDataset, "tar", test_webdataset.WHOLE, 20, test_webdataset.HOSTILE, BOUND),
}


def endless(beginning: bytes) -> bytes:
    """`beginning` and 256 MB of zeros, packed by gzip into one."""
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
        packed.write(beginning)
        for _ in range(BOMB_BYTES // 2**24):
            packed.write(bytes(2**24))
    return file.getvalue()


def archive_of_zeros() -> bytes:
    """An archive of 256 kB that holds an array of 256 MB of zeros."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("data.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (64, 2**22)})
        for _ in range(64):
            member.write(bytes(2**22))
    return file.getvalue()


BOMBS: dict[str, tuple[str, Case]] = {
    "csv": ("csv.gz", (endless(b"a,b\n"), 0, "expected a line of at most")),
    "jsonl": ("jsonl.gz", (endless(b'{"a":"'), 0, "expected a line of at most")),
    "numpy": ("npz", (archive_of_zeros(), 64, "")),
    "tfrecord": ("tfrecord.gz", (endless(test_tfrecord.of_length(2**29)[:12]), 0, "a record of at most max_row_bytes")),
    "webdataset": ("tar.gz", (endless(test_webdataset.of_size(BOMB_BYTES)[:512]), 0, "of at most max_row_bytes")),
}


def written(family: Family, folder: Path, name: str, content: bytes) -> FileSource:
    for number in range(WHOLES):
        (folder / f"m{number}.{family.extension}").write_bytes(family.whole)
    (folder / name).write_bytes(content)
    return family.source(path=str(folder), **family.settings)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, family in FAMILIES.items() for name in family.cases])
def test_a_hostile_file_costs_itself_and_no_other(kind: str, name: str, place: str, tmp_path: Path) -> None:
    family, hostile = FAMILIES[kind], f"{PLACES[place]}-{name}"
    content, kept, words = family.cases[name]
    source = written(family, tmp_path, hostile, content)
    began = time.process_time()
    found = read_all(source)
    assert time.process_time() - began < SECONDS
    wholes = [row for row in found.good if row.startswith("m")]
    assert (len(wholes), len(found.good) - len(wholes)) == (WHOLES * family.rows, kept)
    assert {row.partition("#")[0] for row in found.bad} == ({hostile} if words else set())
    assert all(words in reason for reason in found.bad.values()), found.bad


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", BOMBS)
def test_a_file_that_unpacks_to_much_more_is_not_held_whole(
    kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "LINE_BYTES", 2**22)
    family, (extension, (content, kept, words)) = FAMILIES[kind], BOMBS[kind]
    bomb = f"{PLACES[place]}.{extension}"
    source = written(family, tmp_path, bomb, content)
    forget_peak()
    before = peak_bytes()
    found = rows_of(source, source.units(list_inputs(source, "all")))
    assert peak_bytes() - before < BYTES
    wholes = [row for row in found.good if row.startswith("m")]
    assert (len(wholes), len(found.good) - len(wholes)) == (WHOLES * family.rows, kept)
    assert {re.sub("#.*", "", row) for row in found.bad} == ({bomb} if words else set())
