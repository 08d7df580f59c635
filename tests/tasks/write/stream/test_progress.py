"""Progress is read from Ray Data's private topology: this test breaks when that moves."""

import time
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray.data

from overnight.tasks.resources.ray_internals import OperatorState
from overnight.tasks.resources.sampler import SAMPLED
from overnight.tasks.write.stream import progress
from overnight.tasks.write.stream.progress import Moment, StreamStopped, describe_wait, follow, stages_at_work


def run_steps(table: pa.Table) -> pa.Table:
    return table


class Worker:
    def __call__(self, table: pa.Table) -> pa.Table:
        return table


def operator(name: str, tasks: int, queued: int = 1, is_complete: bool = False) -> OperatorState:
    return OperatorState(name, rows_in=9, rows_out=9, tasks=tasks, queued=queued, starting=1, is_complete=is_complete)


def test_a_stream_without_ray_tasks_waits_for_its_last_rows_or_for_ray_data() -> None:
    names = {"ingest": ("Read",), "infer": ("Worker",)}
    read, idle = operator("ReadRows", 0, is_complete=True), operator("MapBatches(Worker)", 0, queued=0)
    assert describe_wait([read], names) == ("write", "the last rows, which are being staged")
    assert describe_wait([read, idle], names) == ("write", "Ray Data, which has no Ray task and no block to run")


def test_a_stream_waits_for_the_ray_tasks_workers_and_blocks_of_its_last_stage(ray_session: None) -> None:
    names = {"ingest": ("Read",), "infer": ("Worker",)}
    stage, wait = describe_wait([operator("ReadRows", 2), operator("MapBatches(Worker)", 1)], names)
    assert stage == "infer"
    assert wait.startswith("Ray tasks that do not end (1), workers that do not start (1), blocks in its queue (1); ")


def test_a_stage_is_at_work_while_one_of_its_operators_has_a_running_ray_task() -> None:
    names = {"ingest": ("Read",), "preprocess": ("run_steps",), "infer": ("Worker",)}
    fused = [operator("ReadRows->MapBatches(run_steps)", 2), operator("MapBatches(Worker)", 0)]
    assert stages_at_work(fused, names) == {"ingest", "preprocess"}
    assert stages_at_work([operator("MapBatches(Worker)", 0), operator("MapBatches(Worker)", 1)], names) == {"infer"}


def test_every_stage_tells_its_rows_and_the_last_word_is_that_all_is_done(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = map(float, count())
    monkeypatch.setattr(progress, "read_sample", lambda *_: dict.fromkeys(SAMPLED) | {"cpus_busy": next(calls)})
    pq.write_table(pa.table({"x": range(500)}), tmp_path / "a.parquet")
    dataset = ray.data.read_parquet(str(tmp_path / "a.parquet"))
    dataset = dataset.map_batches(run_steps, batch_size=None, batch_format="pyarrow", num_cpus=0.5)
    dataset = dataset.map_batches(Worker, batch_size=100, batch_format="pyarrow", concurrency=1, num_cpus=0.6)
    told: list[Moment] = []
    names = {"ingest": ("Read",), "preprocess": (run_steps.__name__,), "infer": (Worker.__name__,)}
    with follow(dataset, names, told.append) as streamed:
        assert sum(bundle.num_rows() for bundle in dataset.iter_internal_ref_bundles()) == 500
    rows = told[-1].rows
    assert told[-1].is_complete
    assert rows == dict.fromkeys(("ingest", "preprocess", "infer"), 500)
    assert streamed.times.keys() == rows.keys()
    assert streamed.samples["cpus_busy"][0] == 1, "the first reading of a thread has no load"
    assert streamed.samples["started_at"] <= streamed.times["infer"][1]
    assert streamed.times["ingest"][0] <= streamed.times["infer"][0] <= streamed.times["infer"][1]


def test_a_stream_that_must_stop_ends_with_the_blocks_so_far(ray_session: None) -> None:
    dataset = ray.data.range(40, override_num_blocks=40).map_batches(slowly, batch_format="pyarrow", num_cpus=0.5)
    blocks: list[Any] = []

    def run() -> None:
        with follow(dataset, {}, id, reason_to_end=lambda: StreamStopped("enough") if blocks else None):
            blocks.extend(dataset.iter_internal_ref_bundles())

    with pytest.raises(StreamStopped):
        run()
    assert 0 < len(blocks) < 40


def slowly(table: pa.Table) -> pa.Table:
    time.sleep(0.5)
    return table
