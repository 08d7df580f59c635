"""The interface of a preprocess step: build once per worker, then work on one table after another."""

import abc
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import Field, PrivateAttr, field_validator

from overnight.tasks.config.settings import Leaf
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.rows.column_effect import UNKNOWN, ColumnEffect
from overnight.tasks.rows.result import Work

if TYPE_CHECKING:
    from overnight.tasks.duplicates.rule import Rule
    from overnight.tasks.engine.stage import Stage
    from overnight.tasks.engine.stream import Barrier


class PreprocessStep(Leaf):
    """The base class of all steps: the settings of one step. A leaf adds `kind`, its settings and `build`.

    `rows_at_once` is the number of files in one call of the step's work. A call has more files only if they are small,
    and never if `rows_at_once` is 1. A step may make several rows from one row: see `tasks/rows/result.py`.
    """

    # decoded, a few photos take as much memory as many encoded ones
    rows_at_once: ClassVar[int] = 16
    # True: each row's result depends on its `columns_read` alone, and the work neither drops rows nor orders columns
    can_be_remembered: ClassVar[bool] = False

    remember: Annotated[
        bool,
        Field(
            description="Takes results of earlier runs from the job's memory, and leaves new ones there, as a model "
            "does: for work that takes longer than to read its result."
        ),
    ] = False

    operational: ClassVar[tuple[str, ...]] = ("remember",)

    _memory: ModelMemory | None = PrivateAttr(default=None)

    @field_validator("remember")
    @classmethod
    def _what_is_remembered_can_be(cls, remember: bool) -> bool:
        if remember and not cls.can_be_remembered:
            raise ValueError(
                "expected a step that makes rows of each row by itself (decode_image, resize_image, decode_audio, "
                "sample_frames, pdf_text, split_text, python), found one that selects rows or columns, or takes no "
                "longer than a look into the memory; leave out remember"
            )
        return remember

    @property
    def memory(self) -> ModelMemory | None:
        """Return the memory of the step's results by row; None if they are not remembered."""
        return self._memory

    def remembered(self, memory: ModelMemory) -> Self:
        """Return a copy of this step with a memory."""
        copy = self.model_copy()
        copy._memory = memory
        return copy

    def columns_read(self) -> list[str] | None:
        """Return the names of the columns that decide a row's result; None for all columns."""
        return self.inputs() or list(self.column_effect().reads) or None

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

    def further_files(self) -> dict[str, str]:
        """Return the sha256 of files that the `fingerprint` leaves out, for the key of remembered rows."""
        return {}


class PartitionStep(PreprocessStep):
    """A step that compares all rows of the partition: before the stream begins, or when its rows are published.

    `build` compares the rows of one table, for a trial and for a preview.
    """

    @property
    @abc.abstractmethod
    def rule(self) -> "Rule":
        """Return the rule by which rows are compared."""

    @abc.abstractmethod
    def barrier(self, number: int, before: "Stage") -> "Barrier":
        """Return what takes the step's place in the stream, behind the steps `before`. `number` counts these from 0."""
