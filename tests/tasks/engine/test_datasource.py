"""The read through Ray Data: what is settled is skipped, what is left arrives once, in order."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.engine.datasource import OrderedRead
from overnight.tasks.errors import StageFailed
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.reading.read_units import Read, read_units
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.rows import blocks as rows
from overnight.tasks.state import read_plan
from overnight.tasks.state.run import Run
from overnight.tasks.workers.supervisor import Supervisor
from tests.tasks.manifests import write_order
from tests.tasks.runs import make_run


def lay_out(folder: Path, source: Source, settled: dict[int, list[int]], blocks: int) -> tuple[Run, pa.Table]:
    """A run whose order file holds every unit of `source`, with these ranges of it settled."""
    run = make_run(folder)
    units = source.units(list_inputs(source, "all"))
    skipped = pa.array([settled.get(unit) for unit in range(len(units))], pa.list_(pa.int64()))
    pending = units.append_column("settled", skipped).cast(read_plan.PENDING)
    write_order(run.order, pending, np.arange(len(units)) * blocks // len(units))
    return run, units


@pytest.fixture
def source(tmp_path: Path) -> Csv:
    """Ten files of a hundred rows each, the fifth row of each bad."""
    (tmp_path / "in").mkdir()
    for i in range(10):
        lines = [f"{i},{n}" if n != 5 else "bad" for n in range(100)]
        (tmp_path / "in" / f"{i}.csv").write_text("file,n\n" + "\n".join(lines) + "\n")
    return Csv(path=str(tmp_path / "in"))


def test_the_supervisor_is_told_once_of_every_mark_of_a_file_s_end(
    tmp_path: Path, source: Csv, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Supervisor()
    monkeypatch.setattr("overnight.tasks.ingest.reading.read_units.emit", lambda _, event: known.on(event))
    run, units = lay_out(tmp_path, source, {}, blocks=4)
    for block in (0, 1, 2, 3, 3):  # a Ray task may run again
        list(read_units(read_plan.read_block(run.order, block), source, run, source.common_schema(units)))
    assert known.snapshot(run.attempt).ends == 10
    assert known.snapshot("another attempt").ends == 0


def test_settled_rows_are_left_out_and_ends_are_not(tmp_path: Path, source: Csv):
    settled = {0: [0, 100], 1: [0, 5, 5, 6, 90, 100], 2: [3, 4]}
    run, units = lay_out(tmp_path, source, settled, blocks=1)
    blocks = list(read_units(read_plan.read_block(run.order, 0), source, run, source.common_schema(units)))
    found = pa.concat_tables(blocks, promote_options="permissive")
    ranged = found.filter(pa.array(found["__state"].to_numpy() != rows.END))
    numbers = {
        unit: sorted(ranged.filter(pa.array(ranged["__unit"].to_numpy() == unit))["__row"].to_pylist())
        for unit in range(10)
    }
    assert numbers[0] == []
    assert numbers[1] == list(range(6, 90))
    assert numbers[2] == [n for n in range(100) if n != 3]
    assert all(numbers[unit] == list(range(100)) for unit in range(3, 10))
    assert found["__state"].to_pylist().count(rows.END) == 10
    live = found.filter(pa.array(found["__state"].to_numpy() == rows.LIVE))
    assert min(live["__ingest_seconds"].to_pylist()) > 0


def test_what_nobody_foresaw_fails_the_stage_by_its_name(tmp_path: Path):
    class Broken(Csv):
        def read(self, units: pa.Table, schema: pa.Schema | None):
            raise OSError(5, "input/output error")

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a\n1\n")
    source = Broken(path=str(tmp_path / "in"))
    run, _ = lay_out(tmp_path, source, {}, blocks=1)
    with pytest.raises(StageFailed, match=r"OSError.*input/output error") as caught:
        list(read_units(read_plan.read_block(run.order, 0), source, run, None))
    assert caught.value.stage == "ingest"


def test_a_read_task_carries_its_place_and_not_the_list_of_units(tmp_path: Path):
    import cloudpickle

    source, run = Csv(path=str(tmp_path)), make_run(tmp_path)
    count = 20_000
    columns = {
        "unit": np.arange(count), "path": pa.repeat("x" * 100, count), "uri": pa.repeat("y" * 100, count),
        "size": pa.repeat(5 * 2**20, count), "version": pa.repeat("z", count), "first_row": pa.repeat(0, count),
        "rows": pa.repeat(1000, count), "row_group": pa.nulls(count),
        "settled": pa.array(np.arange(20 * count) % 20 * 50).cast(pa.int64()),
    }  # fmt: skip
    columns["settled"] = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * 20, columns["settled"])
    pending = pa.table(columns).cast(read_plan.PENDING)
    write_order(run.order, pending, read_plan.pack(pending["size"].to_numpy()))
    tasks = OrderedRead(Read(source), run).get_read_tasks(1)
    assert len(tasks) == read_plan.MAXIMUM_BLOCKS
    assert max(len(cloudpickle.dumps(task)) for task in tasks[:: len(tasks) // 20]) < 5000
    blocks = [read_plan.read_block(run.order, block) for block in (0, len(tasks) - 1)]
    assert (blocks[0]["unit"][0].as_py(), blocks[1]["unit"][-1].as_py()) == (0, count - 1)
    assert all(len(block) < 2 * count / len(tasks) for block in blocks)
