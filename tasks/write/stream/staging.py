"""Stage the stream's blocks as parts, the checkpoints of the rows that they settle.

The process that runs the stream gathers references to its blocks until a part is due. Then a Ray task writes the part
from them, so no row passes through this process. Ray may run the task again after a worker died: the part has the same
name, so that an equal one replaces it. Readers do not see parts.
"""

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from overnight.tasks.engine.passing_on import without_padding
from overnight.tasks.errors import STREAM_STAGES, ContractError
from overnight.tasks.memory.made_rows import store
from overnight.tasks.resources.plan import WRITES_AT_ONCE
from overnight.tasks.rows.blocks import END, FILTERED, LIVE, MEASURED_STAGES, left_out
from overnight.tasks.rows.nulls import present
from overnight.tasks.rows.rebatch import joined
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.run import Run
from overnight.tasks.state.run import now as utc_now
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.watchdog import death_reported
from overnight.tasks.write.checks.column_statistics import describe
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.stream.progress import stalled
from overnight.tasks.write.stream.rows_to_publish import quarantine_details, rows_to_publish

BYTES_A_PART = 128 * 2**20  # in memory, at most
SHARE_OF_MEMORY = 1 / 8  # two parts are written while a third is gathered
SECONDS_FIRST = 5.0  # of the first part, which shows early whether the sink takes the rows
LARGE_BYTES = 16 * 2**20  # of a part in memory: its file may be published as it is
TOKENS = ("prompt_tokens", "completion_tokens")  # the ends of the names of columns
SECONDS_A_LOOK = 1.0  # between two looks at the writing tasks, so that the process can be interrupted


@dataclass
class Staged:
    """The seconds that staging took, and how many source rows reached each stage; those of `write` are written.

    `tokens` and `cost` are the sums of the columns of chat models, None for a cost that no column has.
    """

    seconds: float = 0.0
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAM_STAGES, 0))
    filtered: int = 0
    tokens: int = 0
    cost: float | None = None

    def __add__(self, other: "Staged") -> "Staged":
        rows = {stage: self.rows[stage] + other.rows[stage] for stage in STREAM_STAGES}
        costs = present((self.cost, other.cost))
        return Staged(
            seconds=self.seconds + other.seconds,
            rows=rows,
            filtered=self.filtered + other.filtered,
            tokens=self.tokens + other.tokens,
            cost=sum(costs) if costs else None,
        )


class Staging:
    """Gathers blocks by reference, and lets Ray tasks write them as parts of the sizes in the settings of `sink`.

    A part also ends with the block that gives it `BYTES_A_PART` in memory, or an eighth of Ray's memory. `staged` sums
    up the written parts. `times` has the moments at which the first part was begun and the last one ended.
    """

    def __init__(self, run: Run, sink: Sink) -> None:
        self.staged = Staged()
        self.times: tuple[str, str] | None = None
        self._run, self._sink, self._size = run, sink, sink.part_size
        memory = ray.cluster_resources().get("object_store_memory", math.inf)
        self._largest = min(BYTES_A_PART, SHARE_OF_MEMORY * memory)
        self._write = ray.remote(num_cpus=0, max_retries=3)(write_part)
        self._blocks: list[Any] = []
        self._rows, self._bytes, self._since = 0, 0, 0.0
        self._parts = 0
        self._writing: list[Any] = []
        self._lock = threading.Lock()

    def add(self, block: Any, rows: int, size: int) -> None:
        """Take a reference to a block of `rows` rows and `size` bytes. If a part is due, begin to write it.

        Wait if the parts before it are still being written. Raise the errors of writing.
        """
        with self._lock:
            if not self._blocks:
                self._since = time.monotonic()
            self._blocks.append(block)
            self._rows, self._bytes = self._rows + rows, self._bytes + size
            self._wait_for(WRITES_AT_ONCE)
            if self._is_due():
                self._wait_for(WRITES_AT_ONCE - 1)
                self._begin()

    def begin_if_due(self) -> None:
        """Begin to write a part that is due by its seconds, although no block arrives. Another thread may call this.

        Do not wait, and leave errors to `add`.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            writing = []
            if self._writing:
                _, writing = ray.wait(self._writing, num_returns=len(self._writing), timeout=0)
            if self._blocks and self._is_due() and len(writing) < WRITES_AT_ONCE:
                self._begin()
        finally:
            self._lock.release()

    def finish(self) -> None:
        """Write the last part, and wait until all parts are written. Raise the errors of writing."""
        with self._lock:
            if self._blocks:
                self._wait_for(WRITES_AT_ONCE - 1)
                self._begin()
            self._wait_for(0)

    def _is_due(self) -> bool:
        seconds = time.monotonic() - self._since
        is_early = not self._parts and self._size.rows is None and seconds >= SECONDS_FIRST
        return is_early or self._bytes >= self._largest or self._size.is_due(self._rows, seconds)

    def _begin(self) -> None:
        self._note_time()
        name = f"{self._run.attempt}-{self._parts:06d}"
        self._writing.append(self._write.remote(self._run, self._sink, name, *self._blocks))
        self._blocks, self._rows, self._bytes = [], 0, 0
        self._parts += 1

    def _note_time(self) -> None:
        moment = utc_now()
        first, _ = self.times or (moment, moment)
        self.times = (first, moment)

    def _wait_for(self, most: int) -> None:
        """Add up what ended, and wait until at most `most` parts are being written."""
        since, limit = time.monotonic(), self._run.stall_timeout_seconds
        while self._writing:
            is_waiting = len(self._writing) > most
            results, self._writing = ray.wait(self._writing, timeout=SECONDS_A_LOOK if is_waiting else 0)
            for result in ray.get(results):
                self.staged += result
                self._note_time()
            if results:
                since = time.monotonic()
            elif not is_waiting:
                return
            elif limit and time.monotonic() - since > limit:
                detail = f", although {len(self._writing)} Ray tasks write"
                raise stalled("no part was written", limit, detail, "write")


def write_part(run: Run, sink: Sink, name: str, *blocks: pa.Table) -> Staged:
    """Write one part, with all output rows of the source rows that it settles. A Ray task runs this function.

    Rows that `sink` refuses are quarantined. Raise `ContractError` for a column that it refuses, or whose types differ.
    """
    start = time.perf_counter()
    with death_reported(run, "write", name, "the process that wrote a part died, and the part was written again"):
        part = _write(run, sink, name, blocks)
    supervisor.report_storage_problems(run, "write")
    part.seconds = time.perf_counter() - start
    return part


def _write(run: Run, sink: Sink, name: str, blocks: tuple[pa.Table, ...]) -> Staged:
    """Write a part, and return what it has."""
    try:
        before = without_padding(joined(blocks))
    except pa.ArrowException as error:
        raise ContractError(f"rows of one column differ in type: {error}. Return one type.", "write") from error
    if not len(before):
        return Staged()
    table, places, block = rows_to_publish(before, run, sink)
    supervisor.report_quarantined(block, before, run)
    statistics = describe(table) if table.nbytes >= LARGE_BYTES else None
    tokens, cost = tokens_and_cost(table)
    for column in staged_parts.SOURCE_ROW:
        table = table.append_column(column, block[column].take(places))
    measures = _measures(block)
    rows = {stage: int(measures[stage]["rows"]) for stage in MEASURED_STAGES}
    measures["write"] = {"seconds": 0.0, "rows": len(table), "bytes": table.nbytes}
    if hits := store(before, f"{run.generation}-{name}"):
        measures["remembered"] = dict(hits)
    staged_parts.write_part(
        run.parts,
        name,
        table,
        quarantine_details(block),
        row_ranges.ranges_of(block),
        measures,
        sink.staged_compression,
        left_out(block),
        statistics,
    )
    states = block["__state"].to_numpy()
    rows["write"] = int(np.count_nonzero(states == LIVE))
    return Staged(rows=rows, filtered=int(np.count_nonzero(states == FILTERED)), tokens=tokens, cost=cost)


def tokens_and_cost(table: pa.Table) -> tuple[int, float | None]:
    """Return the sums of the columns that chat models add, with or without a model's name before theirs.

    A column of the user may have such a name too: its values without a number, such as NaN, do not count.
    """
    tokens, costs = 0.0, list[float]()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            continue
        numbers = pc.cast(column, pa.float64(), safe=False)
        numbers = numbers.filter(pc.is_finite(numbers))
        if name.endswith(TOKENS):
            tokens += _sum(numbers)
        elif name == "cost" or name.endswith("_cost"):
            costs.append(_sum(numbers))
    return round(tokens), sum(costs) if costs else None


def _measures(block: pa.Table) -> staged_parts.Measures:
    """Return the seconds, rows and bytes of each stage before the write."""
    measures: staged_parts.Measures = {}
    for stage in MEASURED_STAGES:
        seconds, sizes = block[f"__{stage}_seconds"], block[f"__{stage}_bytes"]
        rows = len(block) - seconds.null_count
        if stage == "ingest":
            rows = int(np.count_nonzero(block["__state"].to_numpy() != END))
        measures[stage] = {"seconds": _sum(seconds), "rows": rows, "bytes": int(_sum(sizes))}
    return measures


def _sum(column: pa.ChunkedArray) -> float:
    return float(pc.sum(column.cast(pa.float64())).as_py() or 0.0)
