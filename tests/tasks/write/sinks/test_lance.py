"""Lance tables: compaction, unlike fields, others' tables, a first version by several at once, and the vector index."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.errors import CheckFailed, ContractError
from overnight.tasks.write.sinks import lance as lance_sink
from overnight.tasks.write.sinks.lance import LanceSink
from overnight.tasks.write.tables import lance as lance_table
from tests.contracts.sinks.publications import numbered, publish_parts, visible

SINK = LanceSink(path="-")
FIRST, SECOND = "2026-01-01", "2026-01-02"


def open_table(place: Path) -> lance.LanceDataset:
    return lance.dataset(f"{place}/out")


def test_a_partition_that_compaction_mixed_with_others_is_replaced_alone(tmp_path: Path) -> None:
    others, run = numbered(tmp_path, 1, FIRST), numbered(tmp_path, 3, SECOND)
    publish_parts(others, SINK, {"x": [1, 2]})
    files = publish_parts(numbered(tmp_path, 2, SECOND), SINK, {"x": [3]})
    open_table(tmp_path).optimize.compact_files()
    assert len(open_table(tmp_path).get_fragments()) == 1
    assert SINK.foreign(run, set(files)) == []
    publish_parts(run, SINK, {"x": [4]})
    assert (visible(others, SINK), visible(run, SINK)) == ([1, 2], [4])


def test_parts_with_other_fields_in_a_list_of_structs_become_one_column(tmp_path: Path) -> None:
    boxes = [pa.array([[{"x": 1}]]), pa.array([[{"x": 2, "label": "cat"}]])]
    publish_parts(numbered(tmp_path, 1, FIRST), SINK, *({"boxes": column} for column in boxes))
    publish_parts(numbered(tmp_path, 2, SECOND), SINK, {"boxes": boxes[1]})
    found = [box["label"] for row in open_table(tmp_path).to_table()["boxes"].to_pylist() for box in row]
    assert sorted(found, key=str) == [None, "cat", "cat"]


def test_rows_of_somebody_else_are_foreign_and_another_layout_is_refused(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    [file] = publish_parts(run, SINK, {"x": [1]})
    assert SINK.foreign(run, {file}) == []
    assert SINK.foreign(run, set()) == [file]
    publish_parts(numbered(tmp_path / "other", 1, "all"), SINK, {"x": [1]})
    with pytest.raises(CheckFailed, match="column date, found x, row_id"):
        SINK.foreign(numbered(tmp_path / "other", 1), set())


def test_a_first_commit_that_has_not_written_its_version_yet_is_no_table(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    (tmp_path / "out/_versions").mkdir(parents=True)
    assert lance_table.open_table(run.sink) is None
    publish_parts(run, SINK, {"x": [1]})
    assert visible(run, SINK) == [1]


@pytest.mark.parametrize("table", range(8))
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
    run = numbered(tmp_path, 1)
    schemas = [pa.schema([("x", pa.int64()), (f"c{number}", pa.string())]) for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda schema: lance_table.complete(run, schema), schemas))
    assert {f"c{number}" for number in range(5)} <= set(opened(run.sink).schema.names)


def test_the_vector_index_finds_new_rows_and_none_that_were_replaced(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lance_sink, "INDEXED_ROWS", 300)
    sink = LanceSink(path="-", index="vector")
    random = np.random.default_rng(0)

    def columns(count: int) -> dict[str, Any]:
        flat = random.normal(size=(count, 16)).astype(np.float32)
        return {"x": list(range(count)), "vector": pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), 16)}

    with pytest.raises(ContractError, match=r"'vector' .*, found none among x, row_id"):
        publish_parts(numbered(tmp_path, 1, FIRST), sink, {"x": [1]})
    publish_parts(numbered(tmp_path, 1, FIRST), sink, columns(200))
    assert open_table(tmp_path).describe_indices() == []
    publish_parts(numbered(tmp_path, 2, SECOND), sink, columns(400))
    newest = columns(400)
    publish_parts(numbered(tmp_path, 3, SECOND), sink, newest)
    table = open_table(tmp_path)
    [index] = table.describe_indices()
    assert table.stats.index_stats(index.name)["num_unindexed_rows"] == 0
    query = {"column": "vector", "q": newest["vector"][7].values.to_numpy(), "k": 3, "nprobes": 50, "refine_factor": 50}
    found = table.to_table(nearest=query, columns=["x", "date"], filter=f"date = date '{SECOND}'", prefilter=True)
    assert found["x"][0].as_py() == 7
