"""What a Ray task of the preprocess operator does with a block."""

from functools import lru_cache

import pyarrow as pa

from tasks import quarantine_limit, rows
from tasks.preprocess.steps import Step
from tasks.run_directory import Run


def run_steps(block: pa.Table, steps: tuple[Step, ...], run: Run) -> pa.Table:
    """`block` after every step; each worker process builds a step once."""
    for step in steps:
        before = block
        block = rows.apply(block, "preprocess", _built(type(step), step.model_dump_json()))
        quarantine_limit.report(block, before, quarantine_limit.actor_name(run.generation, run.attempt))
    return block


@lru_cache(maxsize=64)
def _built(leaf: type[Step], settings: str) -> rows.Work:
    return leaf.model_validate_json(settings).build()
