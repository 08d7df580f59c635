"""A segment: consecutive stages that one process runs on each block, so that no row crosses between processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from overnight.tasks.engine.passing_on import without_padding
from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.rows import rebatch
from overnight.tasks.state.read_plan import read_block
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.row_isolation import RestartIsolation, RowIsolation

BYTES_AT_ONCE = 2**20  # of results that a process passes on together, unless one piece has more

PassOn = Callable[[Iterable[pa.Table]], Iterator[pa.Table]]


@dataclass(frozen=True)
class Segment:
    """Stages that one process runs one after another."""

    stages: tuple[Stage, ...]
    pass_on: PassOn = iter  # makes the blocks for the next segment from those of the last stage
    is_slow: bool = False  # each result is passed on immediately

    @property
    def name(self) -> str:
        """Return the name of the segment's operator in Ray Data, by which progress recognizes it."""
        return " + ".join(stage.label for stage in self.stages) or "passing on"


def run_stages(
    stages: Sequence[Stage], loaded: Sequence[Loaded], block: pa.Table, run: Run, isolation: RowIsolation | None
) -> Iterator[pa.Table]:
    """Yield the blocks that the `loaded` stages make of a block of rows, or of numbers of blocks to read."""
    holds_block_numbers = "__state" not in block.column_names
    if holds_block_numbers:
        numbers = block["block"].to_pylist()
        first = (numbers[0], 0)
        blocks: Iterator[pa.Table] = (read_block(run.order, number) for number in numbers)
    else:
        block = without_padding(block)
        if not len(block):
            return
        first = (block["__unit"][0].as_py(), block["__row"][0].as_py())
        blocks = iter((block,))
    for stage, work in zip(stages, loaded, strict=True):
        blocks = work.on(blocks, isolation)
        if stage is not stages[-1] and stage.counts_as != "infer":  # Ray Data counts the rows of the last
            blocks = _counted(blocks, run, stage.counts_as, first)
    yield from blocks


def _counted(blocks: Iterator[pa.Table], run: Run, stage: str, first: tuple[int, int]) -> Iterator[pa.Table]:
    """Yield the blocks, and report how many rows have passed `stage`. `first` identifies the input: it counts once."""
    rows = 0
    for block in blocks:
        rows += len(block)
        supervisor.emit(run, supervisor.RowsPassed(run.attempt, stage, first, rows))
        yield block


def run_in_task(block: pa.Table, run: Run, segment: Segment) -> Iterator[pa.Table]:
    stages = [stage.load(run) for stage in segment.stages]
    return segment.pass_on(run_stages(segment.stages, stages, block, run, None))


class SegmentWorker:
    """Runs a segment whose last stages are models, which it loads unless it gets them; several threads may call it.

    If a worker died, the one that `is_restarted` runs the rows of one call at a time, so that another death shows which
    rows it ran.
    """

    def __init__(self, segment: Segment, run: Run, models: Sequence[Loaded] = (), is_restarted: bool = False) -> None:
        self._segment, self._run = segment, run
        self._isolation = RestartIsolation(is_restarted)
        last, before = segment.stages[-1], segment.stages[: len(segment.stages) - len(models)]
        if is_restarted:
            supervisor.report(run, last.counts_as, f"{last.label}: a worker died and was started again")
        self._loaded = [*(stage.load(run) for stage in before), *models]
        self._bytes_at_once = 0 if segment.is_slow else BYTES_AT_ONCE

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        """Yield the results for a block of rows, or for numbers of blocks to read."""
        isolation = self._isolation.next_call()
        with self._isolation.one_at_a_time:
            blocks = run_stages(self._segment.stages, self._loaded, block, self._run, isolation)
            yield from self._segment.pass_on(rebatch.rebatch_bytes(blocks, self._bytes_at_once))
