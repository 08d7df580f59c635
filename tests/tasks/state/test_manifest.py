"""The manifest: what every attempt of a generation reads, and as what."""

from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.state.manifest import UNITS, read_manifest, read_schema
from overnight.tasks.storage.location import Location
from tests.tasks.manifests import write_manifest


@pytest.mark.parametrize("schema", [None, pa.schema([("x", pa.int64()), ("tags", pa.list_(pa.string()))])])
def test_every_attempt_reads_with_the_types_that_the_first_one_found(tmp_path: Path, schema: pa.Schema | None):
    place = Location(str(tmp_path / "manifest"))
    write_manifest(place, UNITS.empty_table(), "digest", schema)
    assert read_schema(place) == schema
    units, inputs = read_manifest(place)
    assert (units.schema.remove_metadata(), inputs) == (UNITS, "digest")
