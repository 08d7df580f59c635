"""The read as a Ray Datasource that follows the reading order, one block per read task.

A read task reads its units from the order file: it has only the file's path and the number of its block.
"""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from overnight.tasks.engine.stage import Stage
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run


class OrderedRead(Datasource):
    """A datasource of Ray that reads the units in the order file of the run's attempt."""

    def __init__(self, read: Stage, run: Run) -> None:
        super().__init__()
        self._read, self._run = read, run

    def get_name(self) -> str:
        return "Ingest"

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(size for _, size in read_summaries(self._run.order))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        tasks = []
        for block, (count, size) in enumerate(read_summaries(self._run.order)):
            read = partial(_read_block, self._read, self._run, block)
            metadata = BlockMetadata(num_rows=count, size_bytes=size, exec_stats=None)
            tasks.append(ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
        return tasks


def _read_block(read: Stage, run: Run, block: int) -> Iterator[pa.Table]:
    return read.load(run).on([read_block(run.order, block)], None)
