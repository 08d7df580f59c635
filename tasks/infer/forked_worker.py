"""A Ray actor whose worker is a separate process, forked from one that has imported the model's libraries."""

import contextlib
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from overnight.tasks.engine.segment import Segment, SegmentWorker, was_restarted
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.forked_process import Begun, Forked, ProcessDied, ending_together


class ForkedWorker:
    """Passes each block to a `SegmentWorker` in a forked process, and ends with that process.

    `loaded_in` is the process of the trial, which has loaded the model. The first worker takes that process over, and
    the others fork their own.
    """

    def __init__(self, segment: Segment, run: Run, loaded_in: Begun | None = None) -> None:
        if loaded_in:
            with contextlib.suppress(ProcessDied):  # another worker was first
                self._worker = Forked(loaded_in, supervisor.ask, takes_output=True)
                list(self._worker.call("become", segment, run, was_restarted()))
                return
        with ending_together():
            make = partial(SegmentWorker, segment, run, is_restarted=was_restarted())
            self._worker = Forked(make, supervisor.ask)

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        with ending_together():
            yield from self._worker.call("__call__", block)
