"""What a Ray task passes to the next operator: blocks of bounded bytes, padded for the stage that takes them."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from overnight.tasks.rows.padding import Share, padding_of
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor


def handed_on(blocks: Iterable[pa.Table], share: Share, to: str, run: Run) -> Iterator[pa.Table]:
    """Yield `Share.padded`, and report to the supervisor how much of it is padding, which progress does not count.

    Args:
        to: The stage that takes it, `infer` or `write`.
    """
    for block in share.padded(blocks):
        if count := padding_of(block):
            first = (block["__unit"][0].as_py(), block["__row"][0].as_py())
            supervisor.tell(run, "padded", run.attempt, to, first, len(block) - count, count)
        yield block
