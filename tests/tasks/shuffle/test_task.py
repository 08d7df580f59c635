"""The shuffle's door, on an order file as ingest leaves it."""

from pathlib import Path

import numpy as np
import pytest

from overnight.tasks.engine import stream as stream_module
from overnight.tasks.engine.stream import Stream
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.shuffle.order import ShuffleFiles
from overnight.tasks.shuffle.task import shuffle
from overnight.tasks.state import read_plan
from overnight.tasks.state.run import Run
from tests.tasks.manifests import write_order
from tests.tasks.runs import make_run
from tests.tasks.shuffle.test_order import units


def test_an_order_is_shuffled_in_each_try_and_still_tells_what_was_quarantined_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, pending = make_run(tmp_path), units(40, groups=1)

    def plan(run: Run) -> None:
        write_order(run.order, pending, np.arange(40) // 10, quarantined=5)

    monkeypatch.setattr(stream_module, "plan_read", plan)
    stream = Stream(Read(Csv(path="in")), bytes_stay=False)
    ordered = shuffle.fn(run, ShuffleFiles(seed=1), stream)
    assert ordered.message == "files are in the order of seed 1"
    shuffled = read_plan.read_order(run.order)["unit"].to_pylist()
    assert sorted(shuffled) == list(range(40))
    assert shuffled != list(range(40))
    assert read_plan.read_earlier(run.order).quarantined == 5

    again = run.as_new_attempt()
    ordered.data.plan_read(again)
    assert read_plan.read_order(again.order)["unit"].to_pylist() == shuffled
    assert shuffle.fn(run, ShuffleFiles(seed=1), stream)
    assert read_plan.read_order(run.order)["unit"].to_pylist() == shuffled, "the task may be tried again"
