"""What a step or a model does to the columns of rows, as its settings alone show it: no row is needed.

`flows/job/columns.py` follows the columns of a job by it, before anything is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnEffect:
    """The columns that are read, made and removed.

    `reads` must exist. So must `reads_in_sql`, in any case of its letters. `makes` exist behind it, and `removes` do
    not. With `keeps` only these stay. With `makes_others` it may also make columns of other names, and then it may
    make a removed one again.
    """

    reads: Sequence[str] = ()
    reads_in_sql: Sequence[str] = ()
    makes: Sequence[str] = ()
    removes: Sequence[str] = ()
    keeps: Sequence[str] | None = None
    makes_others: bool = False


UNKNOWN = ColumnEffect(makes_others=True)
