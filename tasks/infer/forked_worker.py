"""A Ray actor whose worker is a separate process, forked from one that has imported the model's libraries."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from overnight.tasks.infer.worker import PreparingWorker, Worker, was_restarted
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.forked_process import Begun, Forked, ProcessDied, ending_together


class ForkedWorker:
    """Passes each block to a `Worker` in a forked process, and ends with that process.

    `settings` are the arguments of `Worker`. `loaded_in` is the process of the trial, which has loaded the model. The
    first worker takes that process over, and the others fork their own.
    """

    kind: type[Worker] = Worker

    def __init__(self, loaded_in: Begun | None = None, **settings: Any):
        settings["is_restarted"] = was_restarted()
        if loaded_in:
            with contextlib.suppress(ProcessDied):  # another worker was first
                self._worker = Forked(loaded_in, supervisor.ask, takes_output=True)
                list(self._worker.call("become", self.kind, settings))
                return
        with ending_together():
            self._worker = Forked(partial(self.kind, **settings), supervisor.ask)

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        with ending_together():
            yield from self._worker.call("__call__", block)


class ForkedPreparingWorker(ForkedWorker):
    """A `ForkedWorker` whose forked process runs a `PreparingWorker`, which also preprocesses its rows."""

    kind = PreparingWorker
