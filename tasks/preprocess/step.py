"""The interface of a preprocess step: build once per worker, then work on one table after another."""

import abc
from typing import ClassVar

from overnight.tasks.config.settings import Leaf
from overnight.tasks.rows.column_effect import UNKNOWN, ColumnEffect
from overnight.tasks.rows.result import Work


class PreprocessStep(Leaf):
    """The settings of a step; a leaf adds `kind`, its settings and `build`.

    `rows_at_once` is the number of files per call. A call has more files only if they are small, and never if it is 1.
    A step may make several rows of one: see `rows/result.py`.
    """

    rows_at_once: ClassVar[int] = 16  # decoded, a few photos take as much memory as many encoded ones

    @abc.abstractmethod
    def build(self) -> Work:
        """Return the work for each table of live rows; see `tasks/rows/result.py` for its results and errors."""

    def inputs(self) -> list[str] | None:
        """Return the columns that the step reads, so that they are still there; None for all."""
        return None

    def column_effect(self) -> ColumnEffect:
        """Return what the step does to columns, as its settings show it; the default is that only a run shows it."""
        return UNKNOWN

    def fingerprint(self) -> dict[str, str]:
        """Return what the result depends on besides the settings: file name -> sha256 of code."""
        return {}
