"""The shuffle's door, on an order file as ingest leaves it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.shuffle.order import ShuffleFiles
from overnight.tasks.shuffle.task import shuffle
from overnight.tasks.state import read_plan
from overnight.tasks.state.run import Run
from overnight.tasks.state.stream import Stream
from tests.tasks.manifests import write_order
from tests.tasks.runs import make_run


def test_an_order_is_shuffled_in_each_try_and_still_tells_what_was_quarantined_before(tmp_path: Path):
    run, count = make_run(tmp_path), 40
    constant: dict[str, Any] = {"uri": "u", "size": 2**20, "version": "v", "first_row": 0, "rows": 1}

    def planned(run: Run) -> None:
        write_order(run.order, pending, np.arange(count) // 10, quarantined=5)

    pending = pa.Table.from_pylist(
        [constant | {"unit": n, "path": f"{n}", "row_group": None, "settled": None} for n in range(count)],
        schema=read_plan.PENDING,
    )
    stream = Stream(plan_read=planned, datasource=planned, read=iter, sample=run.sample, bytes_stay=False)  # type: ignore[arg-type]
    ordered = shuffle.fn(run, ShuffleFiles(seed=1), stream)
    assert ordered.message == "files are in the order of seed 1"
    shuffled = read_plan.read_order(run.order)["unit"].to_pylist()
    assert sorted(shuffled) == list(range(count))
    assert shuffled != list(range(count))
    assert read_plan.read_quarantined(run.order) == 5

    again = run.as_new_attempt()
    ordered.data.plan_read(again)
    assert read_plan.read_order(again.order)["unit"].to_pylist() == shuffled
    assert shuffle.fn(run, ShuffleFiles(seed=1), stream)
    assert read_plan.read_order(run.order)["unit"].to_pylist() == shuffled, "the task may be tried again"
