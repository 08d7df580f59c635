"""Columns that the names of folders carry, as Hive, Spark, pandas and DuckDB write them: `country=DE/a.parquet`."""

import re
from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows import blocks

NULL = "__HIVE_DEFAULT_PARTITION__"  # Hive's, Spark's and pyarrow's name for null
_DATED = re.compile(r"([^/=]+)=[^/]*\{partition\}")
_NAMED = re.compile(r"(?:^|/)([^/=*?\[]+)=(?=[^/]*[*?\[])")


def folder_columns(path: str) -> dict[str, str | None]:
    """Return the columns that the folders of `path` carry. A value is text as it is written, without percent signs."""
    folders = (folder.partition("=") for folder in path.split("/")[:-1])
    return {unquote(name): None if value == NULL else unquote(value) for name, mark, value in folders if mark and name}


def dated_names(paths: Sequence[str]) -> set[str]:
    """Return the names that the setting `path` gives to the partition: `date` for `raw/*/date={partition}/`."""
    return {name for path in paths for name in _DATED.findall(path)}


def pattern_names(paths: Sequence[str]) -> list[str]:
    """Return the names of columns that the setting `path` shows: `country` for `raw/country=*/`."""
    return [name for path in paths for name in _NAMED.findall(path)]


def with_folder_columns(block: pa.Table, paths: dict[int, str], without: set[str], only: list[str] | None) -> pa.Table:
    """Return a block of live rows with the columns of their files' folders. A column that the block has stays.

    Args:
        paths: The path of each unit.
        without: Names of folders that do not become columns.
        only: The names of the columns to read; None: all.
    """
    if blocks.LIVE not in block["__state"][:1].to_pylist():  # a block is of live rows, or of others
        return block
    units = pc.unique(block["__unit"])
    found = [folder_columns(paths[unit]) for unit in units.to_pylist()]
    for name in dict.fromkeys(name for columns in found for name in columns):
        column = f"source_{name}" if name in blocks.IDENTITY else name
        if name not in without and column not in block.column_names and (only is None or name in only):
            values = pa.array([columns.get(name) for columns in found], pa.string())
            block = block.append_column(column, values.take(pc.index_in(block["__unit"], units)))
    return block
