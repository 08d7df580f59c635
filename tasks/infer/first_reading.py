"""The first reading: a partition with a `deduplicate` before its models is read once more, before the stream.

The reading runs the steps before the `deduplicate`, and keeps only the keys that it compares. The decision which rows
are duplicates is one file of the generation. So a model sees no duplicate, and every attempt and worker has the same
decision. If a process dies before the file exists, the next attempt reads again.
"""

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import ray.data

from overnight.tasks.duplicates import decision
from overnight.tasks.duplicates.places import FAILED, KEYS, PLACES
from overnight.tasks.engine.stream import FirstReading, Stream
from overnight.tasks.infer import operators
from overnight.tasks.resources.plan import Plan
from overnight.tasks.resources.ray_internals import ending_workers
from overnight.tasks.state import lease
from overnight.tasks.state.read_plan import read_summaries
from overnight.tasks.state.run import Run


def decide_duplicates(run: Run, stream: Stream, plan: Plan) -> Iterator[str]:
    """Decide which rows are duplicates, unless an earlier attempt did. Yield a sentence for each new decision."""
    for reading in stream.first_readings:
        file = run.duplicates / str(reading.number)
        if file.exists():
            continue
        start, rows = time.perf_counter(), _Rows()
        duplicates = reading.rule.duplicates(rows.without_failures(_read(run, stream, reading, plan)))
        first = next(duplicates, PLACES.empty_table())  # the rows are read now, before the file begins
        lease.check(run.ledger, run.token)
        count = decision.write(file, itertools.chain([first], duplicates), pa.concat_tables(rows.failures))
        seconds = time.perf_counter() - start
        yield f"deduplicate: {count:,} of {rows.count:,} rows are duplicates; the first reading took {seconds:,.1f} s"


class _Rows:
    """Counts the rows of a first reading, and keeps the identities of the failed ones."""

    def __init__(self) -> None:
        self.count = 0
        self.failures = [PLACES.empty_table()]

    def without_failures(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            has_failed = pc.equal(table["place"], FAILED)
            self.failures.append(table.filter(has_failed).select(PLACES.names))
            keys = table.filter(pc.invert(has_failed))
            self.count += len(keys)
            yield keys


def _read(run: Run, stream: Stream, reading: FirstReading, plan: Plan) -> Iterator[pa.Table]:
    """Yield the keys of all rows of the partition, in any order."""
    run = replace(run, attempt=f"{run.attempt}-keys{reading.number}")  # with an order and a progress of its own
    stream.plan_read(run)
    if not read_summaries(run.order):
        return
    with ray.data.DataContext.current(operators.context()):
        segments = [operators.in_tasks((stream.read,), plan), operators.prepare((reading.keys,), plan)]
        dataset = operators.on_ray(run, segments)
        with ending_workers(dataset):
            for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
                if len(table):
                    yield table.cast(KEYS)
