"""What a Ray task of the preprocess operator does with a block."""

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
from pyarrow import types

from tasks import rows
from tasks.guard import Guard
from tasks.patiently import patiently
from tasks.preprocess.steps import Step
from tasks.run_directory import Run
from tasks.supervisor import report_quarantined


def run_steps(block: pa.Table, steps: tuple[Step, ...], run: Run, pace: float) -> Iterator[pa.Table]:
    """`block` after every step, in pieces where it holds files.

    Each worker process builds a step once. pace: seconds a row, measured on a sample; 0 where nobody knows.
    """
    guard = Guard(run, "preprocess", "preprocess", pace)
    holds_files = any(types.is_binary(kind) or types.is_large_binary(kind) for kind in block.schema.types)
    size = min(step.rows_at_once for step in steps) if holds_files else max(len(block), 1)
    with guard.at(block) as careful:
        for start in range(0, len(block), size):
            yield guard.run(block[start : start + size], lambda piece: _apply(piece, steps, run), careful)


def _apply(piece: pa.Table, steps: tuple[Step, ...], run: Run) -> pa.Table:
    for step in steps:
        before, work = piece, _built(type(step), step.model_dump_json(exclude_unset=True))
        piece = rows.apply(piece, "preprocess", patiently(work, "preprocess"))
        report_quarantined(piece, before, run)
    return piece


def try_steps(block: pa.Table, steps: tuple[Step, ...], run: Run) -> pa.Table:
    """`block` after every step, tried before the stream starts."""
    guard = Guard(run, "preprocess", "preprocess sample", 0)
    with guard.at(block) as careful:
        return guard.run(block, lambda piece: _apply(piece, steps, run), careful)


@lru_cache(maxsize=64)
def _built(leaf: type[Step], settings: str) -> rows.Work:
    return leaf.model_validate_json(settings).build()
