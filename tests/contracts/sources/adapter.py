"""What a source has to give so that the suite can hold it to the promises of a source."""

import abc
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from overnight.tasks.ingest.source import Source

ROWS = 10  # of each file that a promise needs, unless it says otherwise
NO_COLUMNS = "the kind has no such setting: the steps and the sink choose columns"
NO_WHERE = "the kind has no such setting: the step filter_rows selects rows"


@dataclass(frozen=True)
class Damage:
    """A way to damage one written file of `ROWS` rows in place, before it is listed.

    `words`: of the true reason of the rows that are lost. `kept`: the numbers of the file's rows that stay good. All
    rows of the other files stay good too.
    """

    change: Callable[[Path], object]
    words: str
    kept: Collection[int] = ()


class Adapter(abc.ABC):
    """A kind of source: how another program writes its files, and how the format's own library reads them.

    `values` is a table with a column per type that the format can hold, and a row per edge value.
    `not_applicable` has the topics of the promises that the format cannot make (see `suite.promise`), with the reason:
    a fact of the format, never a fault.
    """

    kind: ClassVar[str]
    leaf: ClassVar[Any]
    extension: ClassVar[str] = ""
    values: ClassVar[pa.Table]
    damages: ClassVar[Mapping[str, Damage]] = {}
    not_applicable: ClassVar[Mapping[str, str]] = {}
    where: ClassVar[Mapping[str, str]] = {}  # the setting `where` that selects some of `rows()`
    rows_are_files: ClassVar[bool] = False  # a row is a whole file, whose `row_id` has no number

    def rows(self, count: int = ROWS, first: int = 0) -> pa.Table:
        """Return `count` different rows that the format can hold. `first` is the number of the first of them."""
        numbers = range(first, first + count)
        return pa.table(
            {"n": pa.array(numbers, pa.int64()), "text": pa.array([f"row {number}" for number in numbers], pa.string())}
        )

    @abc.abstractmethod
    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        """Write `rows` as one file `name` plus the format's extension below `folder`, by the format's own library.

        `name` may have folders, such as `country=DE/a`. A table format appends the rows to the table in `folder`, and
        ignores `name`. A source whose rows are files writes `name` for one row, and `name-0`, `name-1` for more.
        Return the file that has the rows.
        """

    def place(self, folder: Path, name: str) -> Path:
        """Return where the file `name` has to be written, in a folder that is there."""
        path = folder / f"{name}{self.extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def source(self, folder: Path, **settings: Any) -> Source:
        """Return the source of all that was written below `folder`, with further settings."""
        return self.leaf(path=str(folder), **settings)

    @abc.abstractmethod
    def expected(self, folder: Path) -> list[dict[str, Any]]:
        """Return all rows below `folder`, as the format's own library reads them, without `row_id` and `uri`.

        The order does not count. Our own code reads nothing here.
        """

    def row_ids(self, path: Path, folder: Path, count: int = ROWS) -> list[str]:
        """Return the ids of the rows of the file `path`, which `write` returned for `count` rows."""
        name = path.relative_to(folder).as_posix()
        return [name] if self.rows_are_files else [f"{name}#{number}" for number in range(count)]
