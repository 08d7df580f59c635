"""Samples of a partition."""

import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.ingest.listing.limit import limited
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.images import Images
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.numpy import Numpy
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.tfrecord import TfRecord
from overnight.tasks.ingest.sources.webdataset import WebDataset
from tests.tasks.ingest.conftest import read_all
from tests.tasks.ingest.sources.test_numpy import npy, npz
from tests.tasks.ingest.sources.test_tfrecord import TEN, file
from tests.tasks.ingest.sources.test_webdataset import pairs, tar


def parquet(count: int) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": range(count)}), buffer, row_group_size=3)
    return buffer.getvalue()


def csv(count: int) -> bytes:
    return b"a,b\n" + b"".join(b"%d\n" % i if i % 3 == 1 else b"%d,0\n" % i for i in range(count))


SOURCES: dict[type[Source], list[tuple[str, bytes]]] = {
    Images: [(f"{i}.png", b"x") for i in range(10)],
    Parquet: [("a.parquet", parquet(4)), ("b.parquet", b"broken"), ("c.parquet", parquet(5))],
    Csv: [("a.csv", b"a,b\n"), ("b.csv", csv(4)), ("c.csv", b""), ("d.csv", csv(5))],
    Jsonl: [
        ("a.jsonl", b""),
        ("b.jsonl", b'{"a":1}\n' * 4),
        ("c.jsonl.gz", gzip.compress(b"{}\nx\n" * 5000)[:40]),
        ("d.jsonl", b'{"a":2}\n{\n' * 9),
    ],
    Numpy: [("a.npy", npy(np.arange(4))), ("b.npz", npz(data=np.arange(5))), ("c.npy", npy(np.arange(9))[:-9])],
    WebDataset: [("a.tar", tar(pairs(4))), ("b.tar", tar(pairs(5))[:6000]), ("c.tar", b"broken")],
    TfRecord: [("a.tfrecord", file(*TEN)), ("b.tfrecord", file(*TEN)[:99]), ("c.tfrecord", b"broken")],
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("limit", [1, 4, 5, 8, 10, 1000])
def test_a_sample_is_exactly_the_first_rows_good_or_bad(tmp_path: Path, kind: type[Source], limit: int):
    for name, content in SOURCES[kind]:
        (tmp_path / name).write_bytes(content)
    source = kind(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    everything, sample = read_all(source, units), read_all(source, limited(source, units, limit))
    total = len(everything.good) + len(everything.bad)
    assert len(sample.good) + len(sample.bad) == min(limit, total)
    # The same rows by the same names; a file that breaks off may name its end after a row.
    assert set(sample.good) <= set(everything.good)
    assert sum(sample.counts.values()) == min(limit, total)
