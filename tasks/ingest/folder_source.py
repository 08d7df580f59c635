"""Sources of files whose folders may carry columns, as Hive, Spark, pandas and DuckDB name them: `country=DE/a.csv`."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.source import FileSource
from overnight.tasks.rows import blocks

NULL = "__HIVE_DEFAULT_PARTITION__"  # Hive's, Spark's and pyarrow's name for null
_DATED = re.compile(r"([^/=]+)=[^/]*(?<!\$)\{\w+\}")
_NAMED = re.compile(r"(?:^|/)([^/=*?\[]+)=(?=[^/]*[*?\[])")


class FolderSource(FileSource):
    """The common settings of sources of files, whose folders may carry columns."""

    hive_columns: Annotated[
        bool,
        Field(
            description="Read the names of folders such as country=DE, below the path, as columns of text. A column of "
            "the file has precedence."
        ),
    ] = True

    def rows(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        if not self.hive_columns:
            yield from self.read(units, schema)
            return
        paths = dict(zip(units["unit"].to_pylist(), units["path"].to_pylist(), strict=True))
        for block in self.read(units, schema):
            yield with_folder_columns(block, paths, dated_names(self.paths), self._chosen() or None)

    def columns_of(self, path: str, names: list[str]) -> list[str] | None:
        """Return the columns to read from the file at `path`, which has the columns `names`; None: all.

        Raise `RowError` if neither the file nor its folders have a column that the setting `columns` names.
        """
        names_to_read = self._chosen()
        if not names_to_read:
            return None
        known_names = list(names)
        if self.hive_columns:
            known_names += folder_columns(path)
        if missing := set(names_to_read).difference(known_names):
            raise RowError(f"expected column {min(missing)}, found {', '.join(known_names)}")
        return [name for name in names_to_read if name in names]

    def _chosen(self) -> list[str] | None:
        columns = getattr(self, "columns", None)
        if isinstance(columns, list):
            return columns
        return None

    def columns_in_settings(self) -> list[str]:
        return pattern_names(self.paths) if self.hive_columns else []


def folder_columns(path: str) -> dict[str, str | None]:
    """Return the columns that the folders of `path` carry. A value is text as it is written, without percent signs."""
    columns: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, mark, value = folder.partition("=")
        if mark and name:
            columns[unquote(name)] = None if value == NULL else unquote(value)
    return columns


def dated_names(paths: Sequence[str]) -> set[str]:
    """Return the names that the setting `path` gives to the partition: `date` for `raw/*/date={partition}/`."""
    return set(chain.from_iterable(map(_DATED.findall, paths)))


def pattern_names(paths: Sequence[str]) -> list[str]:
    """Return the names of columns that the setting `path` shows: `country` for `raw/country=*/`."""
    return list(chain.from_iterable(map(_NAMED.findall, paths)))


def with_folder_columns(block: pa.Table, paths: dict[int, str], without: set[str], only: list[str] | None) -> pa.Table:
    """Return a block with the columns of its files' folders. A column that the block has stays."""
    if blocks.LIVE not in block["__state"][:1].to_pylist():  # a block is of live rows, or of others
        return block
    units = pc.unique(block["__unit"])
    folders = [folder_columns(paths[unit]) for unit in units.to_pylist()]
    for name in dict.fromkeys(chain.from_iterable(folders)):
        column = blocks.data_name(name)
        is_chosen = only is None or name in only
        if is_chosen and name not in without and column not in block.column_names:
            values = pa.array([columns.get(name) for columns in folders], pa.string())
            block = block.append_column(column, values.take(pc.index_in(block["__unit"], units)))
    return block
