"""Run steps on a block, in a Ray task of the preprocess operator, or in a model's worker that prepares its own rows."""

import time
from collections.abc import Callable, Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.config.code_folders import CodeFolder, folder_of, modules_in
from overnight.tasks.preprocess.decided import Decided
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.rows import apply, rebatch, result
from overnight.tasks.rows.file_columns import files_in, holds_files
from overnight.tasks.rows.passing_on import without_weights
from overnight.tasks.state.read_plan import read_block, read_summaries
from overnight.tasks.state.run import Run
from overnight.tasks.state.stream import Read
from overnight.tasks.workers import user_output
from overnight.tasks.workers.retry import with_retries
from overnight.tasks.workers.row_isolation import RowIsolation
from overnight.tasks.workers.supervisor import report_quarantined
from overnight.tasks.workers.watchdog import Watchdog

WARM_UP_SECONDS = 1.0
READ_WARM_UP_SECONDS = 3.0  # for imports of libraries and new connections
SMALL_BYTES = 64 * 2**10  # small files of this size together go to the steps in one call, in any number
BYTES_AT_ONCE = 2**20  # the bytes of a piece of results: many small pieces cost Ray more than the steps
SECONDS_AT_ONCE, MOST_GROWTH = 2.0, 4.0  # the work of a piece, and its growth from one piece to the next
FIRST_SECONDS, FIRST_ROWS = 0.2, 64  # the most of the first piece: its rows may be slower than the sample


def run_steps(
    block: pa.Table,
    run: Run,
    steps: tuple[Step | Decided, ...],
    pace: float,
    isolation: RowIsolation | None = None,
    stage: str = "preprocess",
    label: str = "preprocess",
) -> Iterator[pa.Table]:
    """Run all steps on `block`, and yield the results in pieces that take a few seconds each.

    Each worker process builds a step once.

    Args:
        pace: The seconds that the steps take per row, as measured on a sample, or 0 if unknown.
        isolation: Whether the rows run one by one, as after the death of a process. None, as in a Ray task: the run's
            supervisor decides this.
        stage: The stage for which the errors and the time of the steps count.
        label: Distinguishes these steps from others of the job, in the supervisor's records.
    """
    guard = Watchdog(run, stage, label, pace)
    block = without_weights(block)
    with guard.at(block, isolation) as found:
        done = _in_pieces(
            lambda piece: guard.run(piece, lambda rows: _apply(rows, steps, run, stage), found),
            block,
            _rows_at_once(block, steps),
            pace,
        )
        yield from rebatch.rebatch_bytes(done, BYTES_AT_ONCE)


def _in_pieces(work: Callable[[pa.Table], pa.Table], block: pa.Table, most: int, pace: float) -> Iterator[pa.Table]:
    """Yield `work(piece)` for consecutive pieces of `block` of at most `most` rows.

    The time that a piece takes determines the number of rows in the next one.
    """
    start, size = 0, min(int(FIRST_SECONDS / pace), FIRST_ROWS) if pace else FIRST_ROWS
    while start < len(block):
        piece = block[start : start + min(max(size, 1), most)]
        began = time.perf_counter()
        done = work(piece)
        growth = min(SECONDS_AT_ONCE / (time.perf_counter() - began), MOST_GROWTH)
        start, size = start + len(piece), int(len(piece) * growth)
        yield done


def _rows_at_once(block: pa.Table, steps: tuple[Step | Decided, ...]) -> int:
    """Return how many rows of the block the steps get in one call: all rows if none contains a file."""
    files = [files_in(column) for column in block.columns if holds_files(column.type)]
    if not files:
        return max(len(block), 1)
    at_once = min(step.rows_at_once for step in steps)
    largest = max(pc.max(pc.binary_length(column)).as_py() or 1 for column in files)
    return at_once if at_once == 1 else max(at_once, SMALL_BYTES // largest)


def _apply(piece: pa.Table, steps: tuple[Step | Decided, ...], run: Run, stage: str = "preprocess") -> pa.Table:
    for step in steps:
        before = piece
        with user_output.collected(run, f"{stage} {getattr(step, 'target', None) or step.kind}"):
            work = step.work_on(piece, run) if isinstance(step, Decided) else build(step)
            piece = apply.apply(piece, stage, with_retries(work, stage), keep=run.keep_columns)
        report_quarantined(piece, before, run)
    return piece


def build(step: Step) -> result.Work:
    """Return the work of a step. Each process builds it only once. Raise `JobError` for a step that cannot be built."""
    folder = folder_of(getattr(step, "target", None))
    return _built(type(step), step.model_dump_json(exclude_unset=True), folder)


def try_first_rows(read: Read, steps: tuple[Step, ...], run: Run, count: int) -> pa.Table:
    """Return the first `count` rows in reading order, after every step.

    `read` makes blocks of rows from units. A read of less than three seconds, and steps of less than one, run twice.
    The first time includes imports and connections, and would count as the time per row.
    """
    started = time.perf_counter()
    block = _first_rows(read, run, count)
    if time.perf_counter() - started < READ_WARM_UP_SECONDS:
        block = _first_rows(read, run, count)
    return try_steps(block, steps, run)


def _first_rows(read: Read, run: Run, count: int) -> pa.Table:
    held: list[pa.Table] = []
    for block in range(len(read_summaries(run.order))):
        for table in read(read_block(run.order, block)):
            held.append(table[: count - sum(map(len, held))])
            if sum(map(len, held)) == count:
                return rebatch.joined(held)
    return rebatch.joined(held)


def try_steps(block: pa.Table, steps: tuple[Step, ...], run: Run) -> pa.Table:
    """Run every step on `block` before the stream starts, and return the result.

    Steps of less than a second run twice, so that the measured time does not include imports.
    """
    guard = Watchdog(run, "preprocess", "preprocess sample", 0)

    def tried(isolation: RowIsolation) -> pa.Table:
        return guard.run(block, lambda piece: _apply(piece, steps, run), isolation)

    with guard.at(block) as isolation:
        started = time.perf_counter()
        done = tried(isolation)
        return tried(isolation) if time.perf_counter() - started < WARM_UP_SECONDS else done


@lru_cache(maxsize=64)
def _built(leaf: type[Step], settings: str, folder: CodeFolder | None) -> result.Work:
    with modules_in(folder):
        return leaf.model_validate_json(settings).build()
