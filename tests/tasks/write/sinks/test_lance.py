"""Lance tables: one commit a publish, time travel, several that commit at once, and the vector index."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import CheckFailed, ContractError
from overnight.tasks.state.run import read_json
from overnight.tasks.write.sinks.lance import LanceSink
from overnight.tasks.write.tables import lance as lance_table
from overnight.tasks.write.tables import lance_index
from tests.contracts.sinks.publications import numbered, publish_parts

SINK = LanceSink(path="-")
pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path)
    bucket = f"lance-{uuid.uuid4().hex[:8]}"
    request.getfixturevalue("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/deep"


def open_table(place: Path | str, version: int | None = None) -> lance.LanceDataset:
    """As anybody would, with nothing but the environment."""
    return lance.dataset(f"{place}/out", version=version, storage_options={"allow_http": "true"})


def rows(table: lance.LanceDataset) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in table.to_table().to_pylist():
        found.setdefault(str(row.get("date", "all")), []).append(row["x"])
    return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def test_a_republished_partition_is_replaced_in_one_commit_and_others_stay(place: str) -> None:
    publish_parts(numbered(place, 1, "2026-01-01"), SINK, {"x": [1, 2]})
    publish_parts(numbered(place, 2, "2026-01-02"), SINK, {"x": [3]}, {"x": [4]})
    before = open_table(place).version
    files = publish_parts(numbered(place, 3, "2026-01-02"), SINK, {"x": [5]})
    table = open_table(place)
    assert table.version == before + 1
    assert rows(table) == {"2026-01-01": [1, 2], "2026-01-02": [5]}
    assert rows(open_table(place, before)) == {"2026-01-01": [1, 2], "2026-01-02": [3, 4]}
    there = {f"data/{file.path}" for fragment in table.get_fragments() for file in fragment.metadata.files}
    assert there > set(files)
    receipt = read_json(numbered(place, 3).ledger / "receipt.json")
    assert receipt is not None
    assert receipt["table_version"] == table.version
    properties = table.read_transaction(table.version).transaction_properties
    assert (properties["overnight.partition"], properties["overnight.attempt"]) == ("2026-01-02", "t-000003")


def test_a_partition_that_compaction_mixed_with_others_is_replaced_alone(tmp_path: Path) -> None:
    publish_parts(numbered(tmp_path, 1, "2026-01-01"), SINK, {"x": [1, 2]})
    files = publish_parts(numbered(tmp_path, 2, "2026-01-02"), SINK, {"x": [3]})
    open_table(tmp_path).optimize.compact_files()
    assert len(open_table(tmp_path).get_fragments()) == 1
    assert SINK.foreign(numbered(tmp_path, 3), set(files)) == []
    publish_parts(numbered(tmp_path, 3, "2026-01-02"), SINK, {"x": [4]})
    assert rows(open_table(tmp_path)) == {"2026-01-01": [1, 2], "2026-01-02": [4]}


def test_parts_with_other_fields_in_a_list_of_structs_become_one_column(tmp_path: Path) -> None:
    boxes = [pa.array([[{"x": 1}]]), pa.array([[{"x": 2, "label": "cat"}]])]
    publish_parts(numbered(tmp_path, 1, "2026-01-01"), SINK, *({"boxes": column} for column in boxes))
    publish_parts(numbered(tmp_path, 2, "2026-01-02"), SINK, {"boxes": boxes[1]})
    found = [box["label"] for row in open_table(tmp_path).to_table()["boxes"].to_pylist() for box in row]
    assert sorted(found, key=str) == [None, "cat", "cat"]


def test_rows_of_somebody_else_and_another_layout_are_refused(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    (file,) = publish_parts(run, SINK, {"x": [1]})
    assert SINK.foreign(run, {file}) == []
    assert SINK.foreign(run, set()) == [file]
    publish_parts(numbered(tmp_path / "other", 1, "all"), SINK, {"x": [1]})
    with pytest.raises(CheckFailed, match="expected a Lance table with a column date, found x, row_id"):
        SINK.foreign(numbered(tmp_path / "other", 1), set())


def test_partitions_that_are_published_at_once_all_succeed_the_first_of_the_table_too(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            run = numbered(tmp_path, number, f"2026-01-{number:02d}")
            publish_parts(run, SINK, {"x": [number], f"c{number}": ["a"]})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(open_table(tmp_path)) == {f"2026-01-{number:02d}": [number] for number in range(1, 6)}


def test_a_first_commit_that_has_not_written_its_version_yet_is_no_table(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1, "2026-01-01")
    (tmp_path / "out/_versions").mkdir(parents=True)
    assert lance_table.open_table(run.sink) is None
    publish_parts(run, SINK, {"x": [1]})
    assert rows(open_table(tmp_path)) == {"2026-01-01": [1]}


@pytest.mark.parametrize("table", range(20))
def test_a_table_that_several_create_at_once_has_the_columns_of_each(
    table: int, tmp_path: Path, monkeypatch: Any
) -> None:
    opened, begun, together = lance_table.open_table, threading.local(), threading.Barrier(5)

    def none_at_first(sink: Any) -> Any:
        if not hasattr(begun, "is_so"):
            begun.is_so = together.wait()
            return None
        return opened(sink)

    monkeypatch.setattr(lance_table, "open_table", none_at_first)
    run = numbered(tmp_path, 1, "2026-01-01")
    schemas = [pa.schema([("x", pa.int64()), (f"c{number}", pa.string())]) for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda schema: lance_table.complete(run, schema), schemas))
    assert {f"c{number}" for number in range(5)} <= set(opened(run.sink).schema.names)


def test_the_vector_index_finds_new_rows_and_none_that_were_replaced(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lance_index, "INDEXED_ROWS", 300)
    sink = LanceSink(path="-", index="vector")
    random = np.random.default_rng(0)

    def columns(count: int) -> dict[str, Any]:
        flat = random.normal(size=(count, 16)).astype(np.float32)
        return {"x": list(range(count)), "vector": pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), 16)}

    with pytest.raises(ContractError, match=r"sink.index: expected a column 'vector' .*, found none among x, row_id"):
        publish_parts(numbered(tmp_path, 1, "2026-01-01"), sink, {"x": [1]})
    publish_parts(numbered(tmp_path, 1, "2026-01-01"), sink, columns(200))
    assert open_table(tmp_path).describe_indices() == []
    publish_parts(numbered(tmp_path, 2, "2026-01-02"), sink, columns(400))
    newest = columns(400)
    publish_parts(numbered(tmp_path, 3, "2026-01-02"), sink, newest)
    table = open_table(tmp_path)
    (index,) = table.describe_indices()
    assert table.stats.index_stats(index.name)["num_unindexed_rows"] == 0
    query = {"column": "vector", "q": newest["vector"][7].values.to_numpy(), "k": 3, "nprobes": 50, "refine_factor": 50}
    found = table.to_table(nearest=query, columns=["x", "date"], filter="date = date '2026-01-02'", prefilter=True)
    assert found["x"][0].as_py() == 7
