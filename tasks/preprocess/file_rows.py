"""The common part of steps that make several rows from a file: files run one after another, and each fails alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows import result
from overnight.tasks.rows.file_columns import EXPECTED, files_in, holds_files
from overnight.tasks.rows.tensors import Column


@dataclass(frozen=True)
class FileRows:
    """The rows that a step made from one file. `suffixes`, and each of `columns`, have one value per row.

    A suffix ends the `row_id` of its row, such as 3 in `report.pdf#3`.
    """

    suffixes: Sequence[object]
    columns: Mapping[str, Sequence[Any]]


def expand_files(
    table: pa.Table, column: str, what: str, kinds: pa.Schema, make: Callable[[bytes, int], FileRows]
) -> result.Outcome:
    """Call `make` for each file in `column`, and return all rows that it makes.

    Args:
        what: The step and the expected content of the column, as the beginning of error messages.
        kinds: The names and types of the columns that `make` makes. The type null means arrays.
        make: Makes the rows of the bytes of a file and the number of its row in the table. Raises `RowError` to
            quarantine the file.

    Raises:
        ContractError: The column does not exist or does not contain files.
    """
    if column not in table.column_names:
        raise ContractError(
            f"{what} in column {column!r}, found columns {', '.join(table.column_names)}.", "preprocess"
        )
    kind = table[column].type
    if not holds_files(kind):
        raise ContractError(f"{what} ({EXPECTED}) in column {column!r}, found {kind}.", "preprocess")
    made_of: list[int] = []
    suffixes: list[object] = []
    values: dict[str, list[Any]] = {name: [] for name in kinds.names}
    failed: dict[int, Exception] = {}
    for row, value in enumerate(files_in(table[column])):
        content = value.as_py()
        try:
            if not content:
                raise RowError(f"{what}, " + ("found null" if content is None else "the file is empty (0 bytes)"))
            made = make(content, row)
        except RowError as error:
            failed[row] = error
            continue
        made_of += [row] * len(made.suffixes)
        suffixes += made.suffixes
        for name in kinds.names:
            values[name] += made.columns[name]
    columns: dict[str, Column] = {
        field.name: values[field.name] if types.is_null(field.type) else pa.array(values[field.name], field.type)
        for field in kinds
    }
    return result.several(columns, made_of, suffixes, failed)
