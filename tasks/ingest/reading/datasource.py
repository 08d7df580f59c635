"""The read as a Ray Datasource that follows the reading order, one block per read task.

It contains no list of units: a read task has the order file's path and the number of its block. The task reads its
units from there.
"""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.source import Source
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run


class ManifestDatasource(Datasource):
    """A datasource of Ray that reads the units in the run's order file, which lists what the attempt has to read.

    The file must exist when the dataset runs, not when it is built. `schema` has the columns and types of the rows;
    None if each file determines its own.
    """

    def __init__(self, source: Source, run: Run, schema: pa.Schema | None) -> None:
        super().__init__()
        self._source, self._run, self._schema = source, run, schema

    def get_name(self) -> str:
        return "Ingest"

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(size for _, size in read_summaries(self._run.order))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        return [
            ReadTask(
                partial(_read_block, self._source, self._run, self._schema, block),
                BlockMetadata(num_rows=count, size_bytes=size, exec_stats=None),
                per_task_row_limit=per_task_row_limit,
            )
            for block, (count, size) in enumerate(read_summaries(self._run.order))
        ]


def _read_block(source: Source, run: Run, schema: pa.Schema | None, block: int) -> Iterator[pa.Table]:
    return read_units(read_block(run.order, block), source, run, schema)
