"""What a Ray task of the preprocess operator does with a block."""

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
from pyarrow import types

from tasks import quarantine_limit, rows
from tasks.preprocess.steps import Step
from tasks.run_directory import Run

FILES_AT_ONCE = 16


def run_steps(block: pa.Table, steps: tuple[Step, ...], run: Run) -> Iterator[pa.Table]:
    """`block` after every step, in pieces where it holds files: decoded, a few photos fill as much as many encoded.

    Each worker process builds a step once.
    """
    holds_files = any(types.is_binary(kind) or types.is_large_binary(kind) for kind in block.schema.types)
    size = FILES_AT_ONCE if holds_files else max(len(block), 1)
    for start in range(0, len(block), size):
        piece = block[start : start + size]
        for step in steps:
            before = piece
            piece = rows.apply(piece, "preprocess", _built(type(step), step.model_dump_json()))
            quarantine_limit.report(piece, before, quarantine_limit.actor_name(run.generation, run.attempt))
        yield piece


@lru_cache(maxsize=64)
def _built(leaf: type[Step], settings: str) -> rows.Work:
    return leaf.model_validate_json(settings).build()
