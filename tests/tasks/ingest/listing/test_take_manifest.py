"""A manifest taken as a stream is the manifest of a plain list of files."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing import take_manifest as taking
from overnight.tasks.ingest.listing.limit import limited
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.state.manifest import UNITS, digest, read_manifest, read_passed_over, read_schema, write_manifest
from overnight.tasks.storage.location import File, Location
from tests.tasks.ingest.listing.test_limit import SOURCES

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("files_at_once", [1, 3, 100])
@pytest.mark.parametrize("limit", [None, 1, 5, 1000])
def test_it_is_what_all_files_at_once_would_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Source], files_at_once: int, limit: int | None
):
    monkeypatch.setattr(taking, "FILES_AT_ONCE", files_at_once)
    for name, content in SOURCES[kind]:
        (tmp_path / "in" / "deep").mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
        (tmp_path / "in" / "deep" / name).write_bytes(content)
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
    peaks = {}
    for count in (50_000, 1_000_000):
        folder = tmp_path / str(count)
        command = [sys.executable, "benchmarks/scale.py", "--plan", str(count), "--folder", str(folder)]
        found = json.loads(subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout)
        assert found["tasks"] <= 4096
        peaks[count] = {name: values[2] - found["before"] for name, values in found["steps"].items()}
    assert peaks[1_000_000]["list, write the manifest"] < 200
    assert max(peaks[1_000_000].values()) < 600
