"""The blocks that a Ray task passes to the next operator: of bounded bytes, with the padding that it needs."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from overnight.tasks.rows.padding import Share, padding_of
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor


def handed_on(blocks: Iterable[pa.Table], share: Share, to: str, run: Run) -> Iterator[pa.Table]:
    """Yield `blocks` as `share.padded` makes them, and report their rows of padding to the supervisor.

    Progress does not count padding, which only makes Ray Data pass on a block in time. `to` is the stage of the next
    operator, `infer` or `write`.
    """
    for block in share.padded(blocks):
        if count := padding_of(block):
            first = (block["__unit"][0].as_py(), block["__row"][0].as_py())
            supervisor.tell(run, "padded", run.attempt, to, first, len(block) - count, count)
        yield block
