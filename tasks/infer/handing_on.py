"""The blocks that a Ray task passes to the next operator: of bounded bytes, with the padding that it needs."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from overnight.tasks.rows.padding import Share, padding_of
from overnight.tasks.state.run import Run
from overnight.tasks.workers import supervisor


def handed_on(blocks: Iterable[pa.Table], share: Share, to: str, run: Run) -> Iterator[pa.Table]:
    """Yield the rows of `blocks` in blocks of bounded bytes, with the padding that makes Ray Data pass them on in time.

    Padding is empty rows, because Ray Data counts rows, however large or slow they are. `share` determines their
    number. The supervisor of `run` gets this number, because progress does not count padding. `to` is the stage of the
    next operator, `infer` or `write`.
    """
    for block in share.padded(blocks):
        if count := padding_of(block):
            first = (block["__unit"][0].as_py(), block["__row"][0].as_py())
            supervisor.emit(run, supervisor.Padding(run.attempt, to, first, len(block) - count, count))
        yield block
