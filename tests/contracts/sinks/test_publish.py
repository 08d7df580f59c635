"""What a publish does to a table: what was there before, what others have put there, and what a later one changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from overnight.flows.runs.run import refuse_foreign_files, refuse_other_job
from overnight.tasks.errors import CheckFailed, OvernightError
from overnight.tasks.ingest.reading.unit_rows import file_units
from overnight.tasks.state.lease import LeaseLost, check
from overnight.tasks.state.manifest import begin_manifest
from overnight.tasks.state.published_rows import published_rows, settled_record
from overnight.tasks.state.run import Run, published_files, read_json, write_json
from overnight.tasks.storage.location import File
from overnight.tasks.write.publish.continued import leave_for_next, read_continued
from overnight.tasks.write.publish.publish import prepared, publish
from overnight.tasks.write.publish.remaining_rows import files_to_replace, stage_remaining
from overnight.tasks.write.sink import Sink
from tests.contracts.sinks.adapters import Adapter
from tests.contracts.sinks.publications import (
    NO_ERRORS,
    PATHS,
    columns_of,
    holding,
    kept_of,
    numbered,
    publish_parts,
    publish_ready,
    ready_to_publish,
    receipt_of,
    records_of,
    stage,
    visible,
)
from tests.contracts.sinks.suite import SINKS
from tests.contracts.sinks.values import canonical

FREE_FILES = "each partition's files have their own columns, as the format allows"
NO_FILES = {"sql": "rows of a database are not in files"}
FIRST, SECOND = "2026-01-01", "2026-01-02"


def rows_of(leaf: Adapter, numbers: list[int], **more: Any) -> dict[str, Any]:
    return {**columns_of(leaf.kind, numbers), **more}


@SINKS.promise("a publish replaces its partition and nothing else, and leaves no file of its own work")
@pytest.mark.parametrize("partition", [SECOND, "all"])
def test_a_publish_replaces_its_partition_and_nothing_else(leaf: Adapter, partition: str, tmp_path: Path) -> None:
    sink, others = leaf.sink(tmp_path), numbered(tmp_path, 1, FIRST)
    if partition != "all":
        publish_parts(others, sink, rows_of(leaf, [7]))
    (others.sink / "_SUCCESS").write_bytes(b"theirs")
    for number, numbers in enumerate(([1, 2, 3], [4], [5, 6]), 2):
        run = numbered(tmp_path, number, partition)
        files = publish_parts(run, sink, rows_of(leaf, numbers))
        assert visible(run, sink) == numbers
        assert values(leaf, run, sink, files, "x", pa.int64()) == numbers
    if partition != "all":
        assert visible(others, sink) == [7]
    assert (run.sink / "_SUCCESS").read_bytes() == b"theirs"
    for place in (run.sink, run.sink.parent, run.target):
        assert [name for name in place.names() if "publishing" in name or name.endswith((".part", ".tmp"))] == []


def values(leaf: Adapter, run: Run, sink: Sink, files: list[str], column: str, kind: Any) -> list[Any]:
    return [canonical(cell, kind) for cell in leaf.read(run, sink, files).get(column, [])]


SEVERAL = [
    ("date,hour", ["2026-01-02T05", "2026-01-02T06", "2026-01-03T05"]),
    ("date,region", ["2026-01-02,eu", "2026-01-02,us", "2026-01-03,eu"]),
    ("date,hour,region", ["2026-01-02T05,eu", "2026-01-02T05,us", "2026-01-02T06,eu"]),
    ("week", ["2026-W01", "2026-W02"]),
    ("region", ["eu", "eu-west"]),
]


@SINKS.promise("a publish replaces one partition of several columns, and no other with some of its values")
@pytest.mark.parametrize(("columns", "partitions"), SEVERAL)
def test_a_publish_replaces_a_partition_of_several_columns(
    leaf: Adapter, columns: str, partitions: list[str], tmp_path: Path
) -> None:
    sink = leaf.sink(tmp_path).model_copy(update={"partition_column": columns})
    runs = [numbered(tmp_path, number, name, partition_column=columns) for number, name in enumerate(partitions, 1)]
    for number, run in enumerate(runs, 1):
        publish_parts(run, sink, rows_of(leaf, [number, number + 10]))
    again = numbered(tmp_path, 9, partitions[0], partition_column=columns)
    publish_parts(again, sink, rows_of(leaf, [99]))
    assert visible(again, sink) == [99]
    for number, run in enumerate(runs[1:], 2):
        assert visible(run, sink) == [number, number + 10]
        assert sink.lost(run, published_files(read_json(run.ledger / "receipt.json")), 2) == ""


@SINKS.promise("a publish without rows empties its partition, the first one too")
def test_a_publish_without_rows_empties_its_partition(leaf: Adapter, tmp_path: Path) -> None:
    sink = leaf.sink(tmp_path)
    for number, numbers in enumerate(([], [1, 2], [])):
        run = numbered(tmp_path, number + 1)
        publish_parts(run, sink, *([rows_of(leaf, numbers)] if numbers else []))
        assert visible(run, sink) == numbers


@SINKS.promise("new rows of a retry join the published ones, which stay to the byte, and a retry without any keeps all")
@pytest.mark.parametrize("partition", [SECOND, "all"])
def test_new_rows_of_a_retry_join_the_published_ones(leaf: Adapter, partition: str, tmp_path: Path) -> None:
    sink, others = leaf.sink(tmp_path), numbered(tmp_path, 1, FIRST)
    if partition != "all":
        publish_parts(others, sink, rows_of(leaf, [9]))
    first, second, third = (numbered(tmp_path, number, partition) for number in (2, 3, 4))
    files = publish_parts(first, sink, rows_of(leaf, [1, 2, 3]))
    contents = contents_of(first, files)
    kept = kept_of(files, rows_of(leaf, [1, 2, 3]))
    joined = publish_parts(second, sink, rows_of(leaf, [4, 5]), kept=kept)
    assert visible(second, sink) == [1, 2, 3, 4, 5]
    assert set(files) <= set(joined)
    again = publish_parts(third, sink, kept=kept_of(joined, rows_of(leaf, [1, 2, 3, 4, 5])))
    assert again == joined
    assert visible(third, sink) == [1, 2, 3, 4, 5]
    assert contents_of(third, files) == contents
    assert sink.lost(third, again, 5) == ""
    if partition != "all":
        assert visible(others, sink) == [9]


@SINKS.promise("rows of inputs that changed or are gone leave, all others stay; or the sink refuses before any work")
@pytest.mark.parametrize("partition", [SECOND, "all"])
def test_rows_of_inputs_that_are_gone_leave_and_all_others_stay(
    leaf: Adapter, partition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, before, first, second = leaf.sink(tmp_path), *(numbered(tmp_path, n, partition) for n in (1, 2, 3))
    for run in (first, second):
        with begin_manifest(run.manifest) as manifest:
            manifest.add(file_units([File(path, path, 1, "v") for path in PATHS]))
            manifest.finish("inputs", None)
    whole = rows_of(leaf, [6], text=["stays"], real=pa.array([6.5], pa.float32()))
    files = publish_parts(before, sink, whole)
    kept = kept_of(files, whole)
    kept = replace(kept, by_file={file: {"rows": 1, "bytes": 9, "columns": kept.columns} for file in files})
    reals = pa.array([0.1, None, 1e30, 1 / 3, 2], pa.float32())
    mixed = rows_of(leaf, [1, 2, 3, 4, 5], text=["line\nbreak", "", None, '"', "ä"], real=reals)
    stage(first, mixed, first=1, units=[[1, 1, 1, 0, 0]])
    with ready_to_publish(first, sink, kept) as (held, ready):
        receipt = {**receipt_of(held, sink, ready), "rows_out": 6}
        leave_for_next(held, *records_of(first), ready, receipt["files"])
        receipt = publish(held, sink, ready, NO_ERRORS, receipt)
    record = settled_record(second, first.generation)
    assert record
    published = published_rows(second, "g002", receipt["files"])
    replaced = files_to_replace(second, sink, receipt, published, record, ["ab"])
    if leaf.kind in ("images", "lance", "sql"):
        assert f"sink.kind: {leaf.kind} cannot remove" in replaced.refusal
        return
    assert (replaced.refusal, replaced.rows_leaving, len(replaced.files)) == ("", 3, 1)
    with monkeypatch.context() as context:
        context.setattr(type(sink), "read", None)  # the plan of the flow, after that of its start, reads no row
        assert files_to_replace(second, sink, receipt, published, record, ["ab"]) == replaced
    stage_remaining(second, sink, receipt, record, replaced, ["ab"])
    stage(second, rows_of(leaf, [7], text=["new"], real=pa.array([7.5], pa.float32())), first=9, units=[[2]])
    write_json(second.home / "generation.json", {"continues": "g002", "replaced": list(replaced.files)})
    continued = read_continued(second)
    assert continued
    with ready_to_publish(second, sink, continued.kept) as (held, ready):
        assert ready.rows == 4
        files = publish_ready(held, sink, ready)
    assert visible(second, sink) == [4, 5, 6, 7]
    assert set(receipt["files"]).difference(replaced.files) <= set(files)
    assert values(leaf, second, sink, files, "row_id", pa.string()) == ["a#0", "a#4", "a#5", "c#9"]
    assert values(leaf, second, sink, files, "text", pa.string()) == ["stays", '"', "ä", "new"]
    assert ready.schema.field("real").type == pa.float32()


def contents_of(run: Run, files: list[str]) -> dict[Path, bytes]:
    """What is in the published files, and in directories of images."""
    paths = [path for file in files for path in (Path(run.sink.uri, file), *Path(run.sink.uri, file).rglob("*"))]
    return {path: path.read_bytes() for path in paths if path.is_file()}


@SINKS.promise("a column that a later partition adds is there, and null in the rows before it")
def test_a_column_that_a_later_partition_adds_is_null_before_it(leaf: Adapter, tmp_path: Path) -> None:
    sink, first, second = leaf.sink(tmp_path), *both(tmp_path)
    before = publish_parts(first, sink, rows_of(leaf, [1], old=["a"]))
    after = publish_parts(second, sink, rows_of(leaf, [2], new=[0.5]))
    assert set(values(leaf, first, sink, before, "new", pa.float64())) <= {None}
    assert values(leaf, first, sink, before, "old", pa.string()) == ["a"]
    assert values(leaf, second, sink, after, "new", pa.float64()) == ["0.5"]
    assert set(values(leaf, second, sink, after, "old", pa.string())) <= {None}


def both(place: Path) -> tuple[Run, Run]:
    return numbered(place, 1, FIRST), numbered(place, 2, SECOND)


@SINKS.promise(
    "another type for a column of the table is refused, and nothing has changed",
    parquet=FREE_FILES,
    jsonl=FREE_FILES,
    csv=FREE_FILES,
    images=FREE_FILES,
    sql="SQLite stores the text exactly beside the numbers; for PostgreSQL see test_sql.py",
)
def test_another_type_for_a_column_of_the_table_is_refused(leaf: Adapter, tmp_path: Path) -> None:
    sink, first, second = leaf.sink(tmp_path), *both(tmp_path)
    publish_parts(first, sink, rows_of(leaf, [1]))
    with pytest.raises(OvernightError) as refused:
        publish_parts(second, sink, rows_of(leaf, [2], x=["text"]))
    assert "'x'" in str(refused.value)
    assert visible(first, sink) == [1]
    assert visible(second, sink) == []
    assert "publishing.json" not in second.ledger.names()


@SINKS.promise("a day whose column has no type yet reads as one table with the later days", **NO_FILES)
def test_a_day_without_a_type_reads_as_one_table_with_the_later_days(leaf: Adapter, tmp_path: Path) -> None:
    sink, first, second = leaf.sink(tmp_path), *both(tmp_path)
    before = publish_parts(first, sink, rows_of(leaf, [1, 2], late=pa.nulls(2)))
    after = publish_parts(second, sink, rows_of(leaf, [3, 4], late=["b", "c"]))
    assert set(values(leaf, first, sink, before, "late", pa.string())) <= {None}
    assert values(leaf, second, sink, after, "late", pa.string()) == ["b", "c"]
    if leaf.kind in ("parquet", "images"):
        found = pd.read_parquet([f"{run.sink.uri}/{file}" for run in (second, first) for file in files_of(run)])
        assert sorted(found["x"]) == [1, 2, 3, 4]


def files_of(run: Run) -> list[str]:
    return [f"{run.target.name}/{name}" for name in run.target.names() if name.endswith(".parquet")]


@SINKS.promise("rows and files of others in the partition are refused, and stay")
def test_rows_of_others_in_the_partition_are_refused(leaf: Adapter, tmp_path: Path) -> None:
    sink, run = leaf.sink(tmp_path), numbered(tmp_path, 1)
    refuse_foreign_files(run, sink)
    publish_parts(run, sink, rows_of(leaf, [1]))
    refuse_foreign_files(run, sink)
    refuse_other_job(run)
    with pytest.raises(CheckFailed):
        refuse_other_job(replace(run, job="another"))
    (run.ledger / "receipts").remove()  # as if another tool had written the rows
    stranger = replace(run, job="another") if leaf.kind == "sql" else run
    with pytest.raises(CheckFailed):
        refuse_foreign_files(stranger, sink)
    assert visible(run, sink) == [1]


@SINKS.promise("a sample is published apart, and the table does not change")
def test_a_sample_is_published_apart(leaf: Adapter, tmp_path: Path) -> None:
    sink, run = leaf.sink(tmp_path), numbered(tmp_path, 1)
    publish_parts(run, sink, rows_of(leaf, [1]))
    home = run.state / "samples"
    sample = replace(numbered(tmp_path, 2), sink=home / "published", state=home, limit_rows=1)
    found = sink.of_samples()
    publish_parts(sample, found, rows_of(leaf, [2]))
    assert visible(sample, found) == [2]
    assert visible(run, sink) == [1]


@SINKS.promise("a run that was taken over cannot publish, and leaves nothing in the table")
def test_a_run_that_was_taken_over_cannot_publish(leaf: Adapter, tmp_path: Path) -> None:
    sink, zombie = leaf.sink(tmp_path), numbered(tmp_path, 1)
    stage(zombie, rows_of(leaf, [4, 5]))
    with holding(zombie) as held:
        before = prepared(held, sink, *records_of(zombie))
        ready = before.__enter__()
    successor = numbered(tmp_path, 2)
    publish_parts(successor, sink, rows_of(leaf, [1]))
    with pytest.raises(LeaseLost) as lost:
        publish_ready(held, sink, ready)
    assert "later run" in str(lost.value)
    assert visible(successor, sink) == [1]
    assert not [name for place in (zombie.sink, zombie.target) for name in place.names() if "g001" in name]


def test_a_deleted_folder_is_not_taken_for_a_later_run(tmp_path: Path) -> None:
    with holding(numbered(tmp_path, 1)) as run:
        run.sink.remove()
        with pytest.raises(LeaseLost) as lost:
            check(run.ledger, run.token)
    assert "deleted" in str(lost.value)
    assert "later run" not in str(lost.value)
