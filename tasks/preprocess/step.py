"""What a preprocess step declares, and its two moments: build once a worker, then work on one table after another."""

import abc
from typing import ClassVar

from overnight.tasks.config.settings import Leaf
from overnight.tasks.rows.result import Work


class PreprocessStep(Leaf):
    """A leaf adds `kind`, its settings and `build`. `rows_at_once`: how many files it is given together.

    There are more of them only where they are small, and never where it is 1.

        A step may make several rows of one: see `rows/result.py`.
    """

    rows_at_once: ClassVar[int] = 16  # decoded, a few photos fill as much as many encoded

    @abc.abstractmethod
    def build(self) -> Work:
        """What is called with each table of live rows; see `tasks/rows/result.py` for what it may return and raise."""

    def inputs(self) -> list[str] | None:
        """Return the columns that the step reads, so that they are still there; None for all."""
        return None

    def fingerprint(self) -> dict[str, str]:
        """What the result depends on besides the settings: file name -> sha256 of code."""
        return {}
