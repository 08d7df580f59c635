"""A stream plans its read anew for each try, in the same order."""

from pathlib import Path

from overnight.tasks.engine.stream import Stream
from overnight.tasks.shuffle.order import ShuffleFiles
from overnight.tasks.state import read_plan
from tests.tasks.engine.stages import FakeRead, units_of
from tests.tasks.manifests import write_manifest
from tests.tasks.runs import make_run


def test_the_read_is_planned_in_the_order_of_the_stream(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_manifest(run.manifest, units_of(40, rows=1).drop_columns("settled"), "inputs", None)

    def planned(stream: Stream) -> tuple[bool, list[int]]:
        own = run.as_new_attempt()
        return stream.plan_read(own), read_plan.read_order(own.order)["unit"].to_pylist()

    assert planned(Stream(FakeRead(), False)) == (False, list(range(40)))
    shuffled = Stream(FakeRead(), False, order=ShuffleFiles(seed=1))
    assert planned(shuffled) == planned(shuffled)
    are_single, order = planned(shuffled)
    assert (are_single, sorted(order)) == (True, list(range(40)))
