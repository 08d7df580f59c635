"""Read all rows before the stream, once for each of its barriers.

Such a reading runs the steps before the barrier, and its result is in a file of the generation. So every attempt and
worker has the same one. If a process dies before the file exists, the next attempt reads again.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import ray.data

from overnight.tasks.engine.stage import Stage
from overnight.tasks.engine.stream import Stream
from overnight.tasks.infer import operators
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.ray_internals import ending_workers
from overnight.tasks.state.read_plan import read_summaries
from overnight.tasks.state.run import Run


def pass_barriers(run: Run, stream: Stream, plan: Plan) -> Iterator[str]:
    """Pass the barriers of the stream that no earlier attempt has passed. Yield a sentence for each."""
    for number, barrier in enumerate(stream.barriers):
        if not barrier.is_passed(run):
            reading = replace(run, attempt=f"{run.attempt}-keys{number}")  # with an order and a progress of its own
            yield barrier.take(run, _read(reading, stream, barrier.stage, plan))


def read_for_batches(run: Run, stream: Stream, stage: Stage, plan: Plan) -> Iterator[pa.Table]:
    """Yield the tables that `stage` makes of the rows which no staged part settles, in any order."""
    return _read(replace(run, attempt=f"{run.attempt}-batches"), stream, stage, plan)


def _read(run: Run, stream: Stream, stage: Stage, plan: Plan) -> Iterator[pa.Table]:
    """Yield the tables that `stage` makes of all rows of the partition, in any order."""
    stream.plan_read(run)
    if not read_summaries(run.order):
        return
    with ray.data.DataContext.current(operators.context()):
        segments = [operators.in_tasks((stream.read,), plan), operators.prepare((stage,), plan)]
        dataset = operators.on_ray(run, segments)
        with ending_workers(dataset):
            for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
                if len(table):
                    yield table
