"""Progress is read from Ray Data's private topology: this test breaks when that moves."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray.data
from ray.data import Datasink

from tasks.write.progress import follow


class Ingest(Datasink[None]):
    """Named so that both ends of the stream are recognised: the read by its operator, the write by being one."""

    def write(self, blocks: Any, ctx: Any) -> None:
        for _ in blocks:
            pass


def run_steps(table: pa.Table) -> pa.Table:
    return table


class Worker:
    def __call__(self, table: pa.Table) -> pa.Table:
        return table


def test_every_stage_tells_its_rows_and_the_last_word_is_that_all_is_done(ray_session: None, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": range(500)}), tmp_path / "a.parquet")
    dataset = ray.data.read_parquet(str(tmp_path / "a.parquet"))
    dataset = dataset.map_batches(run_steps, batch_size=None, batch_format="pyarrow", num_cpus=0.5)
    dataset = dataset.map_batches(Worker, batch_size=100, batch_format="pyarrow", concurrency=1, num_cpus=0.6)
    told: list[tuple[dict[str, int], bool]] = []
    with follow(dataset, lambda rows, done: told.append((rows, done))):
        dataset.write_datasink(Ingest())
    rows, done = told[-1]
    assert done
    assert {stage: rows.get(stage) for stage in ("preprocess", "infer", "write")} == {
        "preprocess": 500,
        "infer": 500,
        "write": 500,
    }
