"""Progress recognizes the operators of the stream by the names that Ray Data gives them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray.data
from ray.data import Datasink

from overnight.tasks.infer.operators import names_by_stage, prepare_rows
from overnight.tasks.resources.plan import Plan
from overnight.tasks.state.run import Run
from overnight.tasks.write.stream.progress import follow
from tests.tasks.runs import make_run


class Nowhere(Datasink[None]):
    def write(self, blocks: Any, ctx: Any) -> None:
        for _ in blocks:
            pass


def half(block: pa.Table, run: Run) -> Iterator[pa.Table]:
    yield block[::2]


def test_reading_and_preprocessing_are_recognized_by_their_operators(ray_session: None, tmp_path: Path) -> None:
    numbers = ray.data.range(20, override_num_blocks=1)
    dataset = prepare_rows(numbers, make_run(tmp_path), half, Plan(1, None, (), ()))
    told: list[dict[str, int]] = []
    with follow(dataset, names_by_stage(), lambda rows, done: told.append(rows)):
        dataset.write_datasink(Nowhere())
    assert told[-1] == {"ingest": 20, "preprocess": 10, "write": 10}
