"""The effect of a step or a model on the columns of rows, which its settings show without any row.

With it, `flows/job/columns.py` follows the columns of a job before anything is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnEffect:
    """The columns that a step or a model reads, makes and removes.

    The columns `reads` must exist before it. So must `reads_in_sql`, whose letters may be in any case. The columns
    `unused` must not exist before it. After it, the columns `makes` exist, and `removes` do not. If `keeps` is not
    None, only these columns stay. If `makes_others` is True, it may also make columns of other names, even of names in
    `removes`.

    The values of the columns `media`, of those it makes, are images, sounds or the bytes of files. The columns
    `in_text`, of those it reads, become text in a prompt, so they must have other values.
    """

    reads: Sequence[str] = ()
    reads_in_sql: Sequence[str] = ()
    unused: Sequence[str] = ()
    makes: Sequence[str] = ()
    removes: Sequence[str] = ()
    keeps: Sequence[str] | None = None
    makes_others: bool = False
    media: Sequence[str] = ()
    in_text: Sequence[str] = ()


UNKNOWN = ColumnEffect(makes_others=True)


def in_use(name: str) -> str:
    """Return a message for a step that names a column `name` although another column has this name."""
    return (
        f"expected a name that no column has, found {name!r}, which is a column. Choose another name, or drop that "
        "column first"
    )
