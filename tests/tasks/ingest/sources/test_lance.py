"""Lance tables: read in the version that was listed, fragment by fragment."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.sources.lance import Lance
from overnight.tasks.state.manifest import read_manifest, read_snapshot
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.storage.location import File, Location
from overnight.tasks.storage.object_store import storage_options
from tests.contracts.sources.reading import Read, read_all
from tests.tasks.ingest.conftest import overwritten, rewritten

VECTORS = np.arange(20, dtype=np.float32).reshape(10, 2)


def rows() -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), 2)
    return pa.table({"n": range(10), "text": [f"row {n}" for n in range(10)], "vector": vectors})


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Ten rows in three fragments of four, four and two."""
    place = str(tmp_path / "table.lance")
    lance.write_dataset(rows(), place, max_rows_per_file=4)
    return place


def read(source: Lance) -> Read:
    return read_all(source, source.units(list_inputs(source, "all")))


def test_wide_rows_of_a_fragment_come_in_blocks_of_bounded_bytes(tmp_path: Path) -> None:
    files = [random.Random(n).randbytes(2**20) for n in range(40)]
    lance.write_dataset(pa.table({"file": pa.array(files, pa.large_binary())}), str(tmp_path / "wide.lance"))
    source = Lance(path=str(tmp_path / "wide.lance"))
    units = source.units(list_inputs(source, "all"))
    pending = units.append_column("settled", pa.nulls(1, pa.list_(pa.int64()))).cast(PENDING)
    found = list(source.read(pending, source.common_schema(units)))
    assert [file for block in found for file in block["file"].to_pylist()] == files
    assert max(block.nbytes for block in found) <= 17 * 2**20


def test_what_comes_while_the_table_is_listed_is_of_the_next_run(table: str, tmp_path: Path) -> None:
    class Growing(Lance):
        def files(self, partition: str) -> Iterator[File]:
            lance.write_dataset(rows(), table, mode="append")
            yield from super().files(partition)

    place = Location(str(tmp_path)) / "manifest"
    take_manifest(place, Growing(path=table), "all")
    assert (read_snapshot(place), read_manifest(place)[0]["rows"].to_pylist()) == ("1", [4, 4, 2])


def test_a_change_of_the_table_changes_the_inputs_that_it_concerns_and_no_others(table: str) -> None:
    before = list_inputs(Lance(path=table), "all")
    lance.dataset(table).delete("n = 5")
    after = list_inputs(Lance(path=table), "all")
    assert [then == now for then, now in zip(before, after, strict=True)] == [True, False, True]


def test_a_table_on_s3_is_read(s3: Any, bucket: str) -> None:
    place = f"s3://{bucket}/deep/table.lance"
    lance.write_dataset(rows(), place, max_rows_per_file=4, storage_options=storage_options(str(place)))
    found = read(Lance(path=place))
    assert found.column("n") == list(range(10))
    key = next(iter(found.good.values()))["uri"].removeprefix(f"s3://{bucket}/")
    s3.delete_object(Bucket=bucket, Key=key)
    assert set(read(Lance(path=place)).types.values()) == {"SourceVanished"}


NO_MAGIC = "does not appear to be a Lance file"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "overwritten at its end": (rewritten(lambda content: overwritten(content, -4, None)), NO_MAGIC),
    "overwritten in its footer": (rewritten(lambda content: overwritten(content, -100, -8)), "outside file of size"),
    "overwritten at its beginning": (rewritten(lambda content: overwritten(content, 0, 4)), "corrupt file"),
    "its deletions gone": (Path.unlink, "Not found: "),
    "its deletions cut": (rewritten(lambda content: content[:-9]), "does not contain correct footer"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_fragment_or_its_file_of_deletions_that_was_broken_loses_its_rows_and_no_others(
    table: str, name: str
) -> None:
    lance.dataset(table).delete("n = 5")
    source, (damage, reason) = Lance(path=table), DAMAGES[name]
    files = list_inputs(source, "all")
    units = source.units(files)
    [deletions] = Path(table, "_deletions").iterdir()
    damage(deletions if "deletions" in name else Path(files[1].uri))
    found = read_all(source, units)
    assert found.column("n") == [0, 1, 2, 3, 8, 9]
    [told] = set(found.bad.values())
    assert told.startswith("expected a fragment as Lance wrote it: ")
    assert reason in told


def test_what_is_no_table_or_no_version_of_it_says_so(table: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a Lance table at"):
        list_inputs(Lance(path=str(tmp_path / "nowhere.lance")), "all")
    with pytest.raises(InputError, match="expected a Lance table with the version 7 at"):
        list_inputs(Lance(path=table, version=7), "all")
    with pytest.raises(InputError, match="no column old; the columns are n, text, vector"):
        read(Lance(path=table, columns=["old"]))
    for path in Path(table, "_versions").iterdir():
        path.write_bytes(b"no manifest")
    with pytest.raises(InputError, match="expected a Lance table at"):
        list_inputs(Lance(path=table), "all")
