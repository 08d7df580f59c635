"""The stage of preprocessing steps: it runs them on blocks, in pieces that take a few seconds each."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.config.code_folders import CodeFolder, folder_of, modules_in
from overnight.tasks.engine.row_runner import Operation, RowRunner
from overnight.tasks.engine.stage import Stage
from overnight.tasks.engine.stream import Barrier
from overnight.tasks.memory.made_rows import Made, with_made
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.preprocess.kinds import PreprocessStep
from overnight.tasks.preprocess.remembered_work import known_rows, remembered_work
from overnight.tasks.rows import rebatch, result
from overnight.tasks.rows.arrow_types import files_in, holds_files
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.workers.row_isolation import RowIsolation

WARM_UP_SECONDS = 1.0
READ_WARM_UP_SECONDS = 3.0  # for imports of libraries and new connections
# small files of this size together go to the steps in one call, in any number
SMALL_BYTES = 64 * 2**10
# the bytes of a piece of results: many small pieces cost Ray more than the steps
BYTES_AT_ONCE = 2**20
# the work of a piece, and its growth from one piece to the next
SECONDS_AT_ONCE, MOST_GROWTH = 2.0, 4.0
# the most of the first piece: its rows may be slower than the sample
FIRST_SECONDS, FIRST_ROWS = 0.2, 64

Calls = defaultdict[ModelMemory, list[Made]]  # the results for a block, by the memory that gets them


@dataclass(frozen=True)
class Steps(Stage):
    """Consecutive steps. `pace` is the seconds that they take per row, as measured on a sample, or 0 if unknown.

    `behind` names the model that they follow; None for the steps before the first model.
    """

    steps: tuple[PreprocessStep | Barrier, ...]
    pace: float = 0.0
    behind: str | None = None

    @property
    def label(self) -> str:
        return f"steps behind {self.behind}" if self.behind else "preprocess"

    @property
    def counts_as(self) -> str:
        return "infer" if self.behind else "preprocess"

    def load(self, run: Run) -> "LoadedSteps":
        return LoadedSteps(self, run)


class LoadedSteps:
    """The steps of a stage in one process, which builds each step once."""

    def __init__(self, stage: Steps, run: Run, is_trial: bool = False) -> None:
        label = f"{stage.label} sample" if is_trial else stage.label
        self._stage, self._rows = stage, RowRunner(run, stage.counts_as, label, stage.pace, is_trial)
        self._run, self._is_trial = run, is_trial

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        """Yield the blocks after all steps, in pieces that take a few seconds each."""
        for block in blocks:
            with self._rows.guard.at(block, isolation) as block_isolation:
                run = partial(self._worked, isolation=block_isolation)
                pieces = _in_pieces(run, block, self._most_rows(block), self._stage.pace)
                yield from rebatch.rebatch_bytes(pieces, BYTES_AT_ONCE)

    def tried(self, block: pa.Table) -> pa.Table:
        """Return `block` after all steps. Steps of less than a second run twice, to measure them without imports."""
        with self._rows.guard.at(block) as isolation:
            return _without_warm_up(lambda: self._worked(block, isolation), WARM_UP_SECONDS)

    def _worked(self, block: pa.Table, isolation: RowIsolation) -> pa.Table:
        calls: Calls = defaultdict(list)
        operations = [_operation(step, self._stage.counts_as, self._run, calls) for step in self._stage.steps]
        block = self._rows.run(block, operations, isolation)
        if not self._is_trial:
            for memory, results in calls.items():
                if results:
                    block = with_made(block, memory, results)
        return block

    def _most_rows(self, block: pa.Table) -> int:
        """Return how many rows of the block the steps get in one call: all rows if none contains a file."""
        files = [files_in(column) for column in block.columns if holds_files(column.type)]
        if not (files and self._stage.steps):
            return max(len(block), 1)
        rows_at_once = min(step.rows_at_once for step in self._stage.steps)
        largest = max(pc.max(pc.binary_length(column)).as_py() or 1 for column in files)
        return rows_at_once if rows_at_once == 1 else max(rows_at_once, SMALL_BYTES // largest)


def _without_warm_up(work: Callable[[], pa.Table], seconds: float) -> pa.Table:
    """Return the result of work, which runs a second time if it takes less than `seconds`.

    The first time includes imports and connections, which would count as the time per row.
    """
    start = time.perf_counter()
    block = work()
    return work() if time.perf_counter() - start < seconds else block


def _in_pieces(
    work: Callable[[pa.Table], pa.Table], block: pa.Table, most_rows: int, pace: float
) -> Iterator[pa.Table]:
    """Yield `work(piece)` for consecutive pieces of `block` of at most `most_rows` rows.

    The time that a piece takes determines the number of rows in the next one.
    """
    start, size = 0, FIRST_ROWS
    if pace:
        size = min(int(FIRST_SECONDS / pace), FIRST_ROWS)
    while start < len(block):
        piece = block[start : start + min(max(size, 1), most_rows)]
        start_seconds = time.perf_counter()
        output = work(piece)
        growth = min(SECONDS_AT_ONCE / (time.perf_counter() - start_seconds), MOST_GROWTH)
        start, size = start + len(piece), int(len(piece) * growth)
        yield output


def _operation(step: PreprocessStep | Barrier, stage: str, run: Run, calls: Calls) -> Operation:
    source = f"{stage} {getattr(step, 'target', None) or step.kind}"
    if not isinstance(step, PreprocessStep):
        return Operation(source, partial(step.work_on, run=run))
    memory = step.memory
    if memory is None:
        return Operation(source, lambda _: build(step))
    known = known_rows(memory, run.attempt)
    return Operation(source, lambda _: remembered_work(known, step.columns_read(), partial(build, step), calls[memory]))


def build(step: PreprocessStep) -> result.Work:
    """Return the work of a step. Each process builds it only once. Raise `JobError` for a step that cannot be built."""
    folder = folder_of(getattr(step, "target", None))
    return _cached_work(type(step), step.model_dump_json(exclude_unset=True), folder)


@lru_cache(maxsize=64)
def _cached_work(leaf: type[PreprocessStep], settings: str, folder: CodeFolder | None) -> result.Work:
    with modules_in(folder):
        return leaf.model_validate_json(settings).build()


def try_first_rows(read: Stage, steps: Steps, run: Run, count: int) -> pa.Table:
    """Return the first `count` rows in reading order, after every step. A quick read runs twice, as quick steps do."""
    block = _without_warm_up(lambda: _first_rows(read, run, count), READ_WARM_UP_SECONDS)
    return LoadedSteps(steps, run, is_trial=True).tried(block)


def _first_rows(read: Stage, run: Run, count: int) -> pa.Table:
    units = (read_block(run.order, block) for block in range(len(read_summaries(run.order))))
    tables: list[pa.Table] = []
    missing = count
    for table in read.load(run).on(units, None):
        tables.append(table[:missing])
        missing -= len(tables[-1])
        if not missing:
            break
    return rebatch.joined(tables)
