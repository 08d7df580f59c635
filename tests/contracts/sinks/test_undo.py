"""An undo of every sink: it publishes the earlier rows again, or refuses and changes nothing."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overnight.tasks.errors import NotKept
from overnight.tasks.state.run import read_json
from overnight.tasks.write.sinks.earlier_files import FOLDER, KEPT
from overnight.tasks.write.sinks.hive_files import HiveFiles
from overnight.tasks.write.sinks.parquet import ParquetSink
from tests.contracts.sinks.adapters import ADAPTERS, Adapter
from tests.contracts.sinks.publications import (
    columns_of,
    keeping,
    kept_of,
    numbered,
    publish_parts,
    sink_of,
    undo,
    visible,
)

OLD, NEW = [1, 2, 3], [4, 5]
PARTITIONS = ["2026-01-02", "all"]


def published_twice(kind: str, place: Path | str, partition: str, count: int = 1) -> Any:
    """A sink in which the rows NEW have replaced the rows OLD."""
    sink = keeping(sink_of(kind, place), count)
    for number, numbers in enumerate((OLD, NEW), 1):
        publish_parts(numbered(place, number, partition), sink, columns_of(kind, numbers))
    return sink


def values_read(run: Any, sink: Any, generation: str) -> list[int]:
    receipt = read_json(run.ledger / "receipts" / f"{generation}.json") or {}
    return sorted(value for table in sink.read(run.sink, receipt, ["x"]) for value in table["x"].to_pylist())


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("leaf", ADAPTERS.values(), ids=ADAPTERS)
def test_an_undo_publishes_the_earlier_rows_again_and_can_be_undone(
    leaf: Adapter, partition: str, tmp_path: Path
) -> None:
    sink, run = published_twice(leaf.kind, tmp_path, partition), numbered(tmp_path, 3, partition, reason="wrong")
    if not sink.keeps_publications:
        with pytest.raises(NotKept, match=f"found kind: {leaf.kind}, which has the rows of the newest publish only"):
            undo(run, sink, "g001")
        assert visible(run, sink) == NEW
        assert not (run.ledger / "publishing.json").exists()
        return
    receipt = undo(run, sink, "g001")
    assert visible(run, sink) == OLD
    assert (receipt["undo"]["generation"], receipt["undo"]["undone"]["generation"]) == ("g001", "g002")
    assert receipt == read_json(run.ledger / "receipt.json")
    assert (receipt["reason"], receipt["rows_resumed"], receipt["rows_per_second"]) == ("wrong", 3, 0.0)
    assert (values_read(run, sink, "g003"), values_read(run, sink, "g002")) == (OLD, NEW)
    undo(numbered(tmp_path, 4, partition), sink, "g002")
    assert visible(run, sink) == NEW
    assert values_read(run, sink, "g003") == OLD
    publish_parts(numbered(tmp_path, 5, partition), sink, columns_of(leaf.kind, [7]))
    assert visible(run, sink) == [7]


@pytest.mark.parametrize("store", ["memory", "s3"])
def test_an_undo_on_an_object_store_copies_the_kept_objects(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = f"memory://{tmp_path.name}/place"
    if store == "s3":
        request.getfixturevalue("s3").create_bucket(Bucket="undone")
        root = "s3://undone/place"
    sink, run = published_twice("images", root, "2026-01-02"), numbered(root, 3)
    undo(run, sink, "g001")
    assert visible(run, sink) == OLD
    assert (values_read(run, sink, "g003"), values_read(run, sink, "g002")) == (OLD, NEW)


def test_images_of_an_undo_have_their_new_places_in_the_index(tmp_path: Path) -> None:
    sink, run = published_twice("images", tmp_path, "all"), numbered(tmp_path, 3, "all")
    files = undo(run, sink, "g001")["files"]
    [table] = [table for table in sink.read(run.sink, {"files": files}, None) if len(table)]
    paths = table["x_as_bytes_path"].to_pylist()
    assert [(Path(run.sink.uri) / path).read_bytes()[-1] for path in paths] == table["x"].to_pylist()


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_sink_keeps_only_as_many_publications_as_it_should(partition: str, tmp_path: Path) -> None:
    sink, run = published_twice("parquet", tmp_path, partition, count=2), numbered(tmp_path, 6, partition)
    for number in (3, 4):
        publish_parts(numbered(tmp_path, number, partition), sink, {"x": [number]})
    kept = run.sink / FOLDER / run.partition_directory if run.partition_directory else run.sink / FOLDER
    assert len(kept.names()) == 2
    assert all(name.endswith(KEPT) for name in kept.names()), "no listing of *.parquet finds one"
    with pytest.raises(NotKept, match=r"expected the files of the generation g001, found .* gone"):
        undo(run, sink, "g001")
    assert visible(run, sink) == [4]
    publish_parts(numbered(tmp_path, 7, partition), keeping(sink, 0), {"x": [5]})
    assert kept.names() == []


def test_ten_generations_with_few_new_rows_take_hardly_more_space_than_one(tmp_path: Path) -> None:
    """Files that a publish leaves as they are stay one file, by reference.

    A copied part keeps its footer, which counts up to 1,000 values of a column: each publish adds more rows than that,
    so that the footers are small beside the rows.
    """
    sink, count = keeping(sink_of("parquet", tmp_path), 10), 150_000
    first = numbered(tmp_path, 1)
    numbers = [pow(3, number, 2**61 - 1) for number in range(count)]
    files = publish_parts(first, sink, {"x": numbers})
    size = used(first.sink.uri)
    for number in range(2, 12):
        kept = kept_of(files, {"x": numbers})
        more = [pow(5, number * count + row, 2**61 - 1) for row in range(count // 100)]
        files = publish_parts(numbered(tmp_path, number), sink, {"x": more}, kept=kept)
        numbers += more
    undo(numbered(tmp_path, 12), sink, "g005")
    assert len(visible(first, sink)) == count + 4 * (count // 100)
    assert used(first.sink.uri) <= 1.2 * size


def used(folder: str) -> int:
    """The bytes of the data files of a folder; a file with several names counts once."""
    sizes = {}
    for place, _, names in os.walk(folder):
        for name in names:
            if name.startswith("part-"):
                status = os.stat(os.path.join(place, name))
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def test_every_sink_of_files_keeps_publications(tmp_path: Path) -> None:
    for kind in ADAPTERS:
        sink = sink_of(kind, tmp_path)
        assert isinstance(sink, HiveFiles) <= sink.keeps_publications


@pytest.mark.parametrize("first_to_stay", [0, 1], ids=["added", "changed"])
def test_ten_publications_that_each_change_a_hundredth_take_little_more_space_than_one(
    first_to_stay: int, tmp_path: Path
) -> None:
    """Of 150,000 rows in files of a hundredth each, 1,500 are added, or replace those of one file."""
    sink = ParquetSink(path="-", grace_seconds=0, keep_publications=10, target_file_size=200_000)
    draws = np.random.default_rng(7)

    def rows(count: int) -> dict[str, Any]:
        return {"x": draws.integers(0, 10**9, count).tolist(), "score": draws.random(count)}

    files = publish_parts(numbered(tmp_path, 0, "all"), sink, *[rows(1500) for _ in range(100)])
    before = bytes_below(tmp_path)
    for number in range(1, 11):
        files = files[first_to_stay:]
        kept = kept_of(files, rows(1500 * len(files)))
        files = publish_parts(numbered(tmp_path, number, "all"), sink, rows(1500), kept=kept)
    share = bytes_below(tmp_path) / before
    print(f"{share:.3f} times the space of one publication")
    assert share < 1.2
    receipt = undo(numbered(tmp_path, 11, "all"), sink, "g000")
    assert len(receipt["files"]) == 100
    assert bytes_below(tmp_path) / before < 1.2, "an undo links its files"


def bytes_below(folder: Path) -> int:
    """The bytes of all files, the state too; a file that several names share counts once."""
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum({stat.st_ino: stat.st_size for stat in stats}.values())
