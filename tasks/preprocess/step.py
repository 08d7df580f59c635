"""The interface of a preprocess step: build once per worker, then work on one table after another."""

import abc
from typing import ClassVar

from overnight.tasks.config.settings import Leaf
from overnight.tasks.rows.column_effect import UNKNOWN, ColumnEffect
from overnight.tasks.rows.result import Work


class PreprocessStep(Leaf):
    """The base class of all steps: the settings of one step. A leaf adds `kind`, its settings and `build`.

    `rows_at_once` is the number of files in one call of the step's work. A call has more files only if they are small,
    and never if `rows_at_once` is 1. A step may make several rows from one row: see `tasks/rows/result.py`.
    """

    # decoded, a few photos take as much memory as many encoded ones
    rows_at_once: ClassVar[int] = 16

    @abc.abstractmethod
    def build(self) -> Work:
        """Return the work: a function of a table of live rows, which are neither filtered nor quarantined.

        See `tasks/rows/result.py` for its results and errors.
        """

    def inputs(self) -> list[str] | None:
        """Return the names of the columns that the step reads, so that they are kept for it. None means all columns."""
        return None

    def column_effect(self) -> ColumnEffect:
        """Return which columns the step reads, makes and drops, as its settings show."""
        return UNKNOWN

    def fingerprint(self) -> dict[str, str]:
        """Return what the results depend on besides the settings, as a mapping: file name -> sha256 of the file."""
        return {}
