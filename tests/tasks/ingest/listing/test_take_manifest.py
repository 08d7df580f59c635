"""A manifest taken as a stream is the manifest of a plain list of files."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing import take_manifest as taking
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.listing.take_manifest import limited, take_manifest
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.numpy import Numpy
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.tfrecord import TfRecord
from overnight.tasks.ingest.sources.webdataset import WebDataset
from overnight.tasks.state.manifest import UNITS, digest, read_manifest, read_passed_over, read_schema
from overnight.tasks.storage.location import File, Location
from tests.tasks.ingest.conftest import read_all
from tests.tasks.ingest.sources.test_numpy import npy, npz
from tests.tasks.ingest.sources.test_tfrecord import TEN, file
from tests.tasks.ingest.sources.test_webdataset import pairs, tar
from tests.tasks.manifests import write_manifest

ROOT = Path(__file__).resolve().parents[4]


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
@pytest.mark.parametrize(("files_at_once", "limit"), [(1, None), (3, None), (1, 1), (1, 5), (3, 5), (100, 1000)])
def test_it_is_what_all_files_at_once_would_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Source], files_at_once: int, limit: int | None
) -> None:
    monkeypatch.setattr(taking, "FILES_AT_ONCE", files_at_once)
    (tmp_path / "in/deep").mkdir(parents=True)
    for name, content in SOURCES[kind]:
        (tmp_path / "in" / name).write_bytes(content)
        (tmp_path / "in/deep" / name).write_bytes(content)
    source, place = kind(path=str(tmp_path / "in")), Location(str(tmp_path)) / "manifest"
    take_manifest(place, source, "all", limit)
    files = list_inputs(source, "all")
    units = source.units(files)
    if limit is not None:
        units = limited(source, units, limit)
    found, inputs = read_manifest(place)
    assert found.cast(UNITS).equals(pa.table(units).cast(UNITS))
    assert inputs == digest(files)
    assert read_schema(place) == source.common_schema(units)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_sample_is_exactly_the_first_rows_good_or_bad(tmp_path: Path, kind: type[Source]) -> None:
    for name, content in SOURCES[kind]:
        (tmp_path / name).write_bytes(content)
    source = kind(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    everything = read_all(source, units)
    total = len(everything.good) + len(everything.bad)
    for limit in (1, 4, 5, 8, 10, 1000):
        sample = read_all(source, limited(source, units, limit))
        # The same rows by the same names; a file that breaks off may name its end after a row.
        assert len(sample.good) + len(sample.bad) == sum(sample.counts.values()) == min(limit, total)
        assert set(sample.good) <= set(everything.good)


def test_a_manifest_that_cannot_be_taken_is_not_there(tmp_path: Path):
    place = Location(str(tmp_path)) / "manifest"
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match=r"expected files ending in \.csv"):
        take_manifest(place, Csv(path=str(tmp_path / "in")), "all")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    take_manifest(place, Csv(path=str(tmp_path / "in"), allow_empty=True), "all")
    units, inputs = read_manifest(place)
    assert (len(units), inputs) == (0, digest([]))


def test_the_manifest_keeps_what_the_listing_passed_over(tmp_path: Path):
    place = Location(str(tmp_path)) / "manifest"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"x\n1\n")
    (tmp_path / "in" / "_SUCCESS").write_bytes(b"")
    take_manifest(place, Csv(path=str(tmp_path / "in")), "all")
    assert read_passed_over(place) == {"name that begins with _ or .": {"files": 1, "names": ["_SUCCESS"]}}
    write_manifest(place, UNITS.empty_table(), "digest", None)
    assert read_passed_over(place) == {}


def test_the_digest_of_a_listing_is_the_same_in_every_release(tmp_path: Path):
    files = [File("a/b.csv", "s3://x/a/b.csv", 3, "e1", 1.0), File("ü.csv", "s3://x/ü.csv", 0, "", None)]
    assert digest(files) == "afc5ff0289101dfca5f28f1d34dc66737a0d8b701246e64a886697662a79df8e"


@pytest.mark.slow
def test_planning_holds_a_few_bytes_an_object_and_listing_none(tmp_path: Path):
    """A list of files took 1,100 MB a million; each process here starts with about 190 MB of libraries."""
    command = [sys.executable, "benchmarks/scale.py", "--plan", "500000", "--folder", str(tmp_path / "plan")]
    found = json.loads(subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout)
    assert found["tasks"] <= 4096
    peaks = {name: values[2] - found["before"] for name, values in found["steps"].items()}
    assert peaks["list, write the manifest"] < 200
    assert max(peaks.values()) < 450
