"""The first reading of a partition that has a `deduplicate`: run the steps before it, and make a key of each row."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from overnight.tasks.duplicates.places import FAILED, KEYS
from overnight.tasks.duplicates.rule import Rule, keyed
from overnight.tasks.preprocess.decided import Decided, identity
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.preprocess.run_steps import run_steps
from overnight.tasks.preprocess.steps.columns import require_columns
from overnight.tasks.rows import blocks
from overnight.tasks.state.run import Run


def keyed_rows(
    block: pa.Table, run: Run, steps: tuple[Step | Decided, ...], rule: Rule, pace: float
) -> Iterator[pa.Table]:
    """Run `steps` on a block, and yield tables (schema `KEYS`) with the key by which `rule` compares each row.

    A row that failed has a null key, and `FAILED` as its place. `pace` is the seconds that the steps take per row, or 0
    if unknown.
    """
    for piece in run_steps(block, run, steps, pace) if steps else (block,):
        failed = piece.filter(pa.array(piece["__state"].to_numpy() == blocks.QUARANTINED))
        places = np.full(len(failed), FAILED, np.int32)
        yield pa.table([failed["__unit"], failed["__row"], places, pa.nulls(len(failed), KEYS[3].type)], schema=KEYS)
        rows, _ = blocks.live_rows(piece)
        if len(rows):
            require_columns(rows, rule.columns, "deduplicate")
            yield keyed(rows, rule, *identity(piece))
