"""Checks of the columns that steps read: a step refuses a column that is missing or of another type by its name."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import ContractError, RowError, did_you_mean
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result
from overnight.tasks.rows.arrow_types import FILES, files_in, holds_files, is_list
from overnight.tasks.rows.tensors import Column, as_lists


def require_columns(table: pa.Table, names: Sequence[str], what: str) -> None:
    """Raise `ContractError` if the table lacks one of the columns `names`. `what` names the step in the message."""
    for name in names:
        if name not in table.column_names:
            columns = ", ".join(table.column_names)
            suggestion = did_you_mean(name, table.column_names)
            raise ContractError(f"{what}: expected a column {name!r}, found {columns}{suggestion}.", "preprocess")


class ColumnsStep(PreprocessStep):
    """The base class of steps that need nothing but the columns that their `column_effect` reads."""

    @abc.abstractmethod
    def outcome(self, table: pa.Table) -> result.Outcome:
        """Return the result for a table of live rows, which has these columns."""

    def inputs(self) -> list[str]:
        return list(self.column_effect().reads)

    def build(self) -> result.Work:
        def work(table: pa.Table) -> result.Outcome:
            require_columns(table, self.inputs(), self.kind)
            return self.outcome(table)

        return work


def lists_in(table: pa.Table, name: str, what: str) -> Any:
    """Return the column `name` as an Arrow array of lists; arrays become lists of their entries.

    Raise `ContractError` if the column has another type.
    """
    lists: Any = as_lists(table[name])
    if types.is_null(lists.type):
        return pa.nulls(len(lists), pa.list_(pa.null()))
    if not is_list(lists.type):
        raise ContractError(
            f"{what}: expected lists in column {name!r}, found {lists.type}. Make lists of it in derive_columns, or "
            "use another column.",
            "preprocess",
        )
    return lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists


def numbered(counts: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return two values per output row: the number of its source row, and its own number in that row, from 0.

    `counts` has the number of output rows of each source row.
    """
    sources = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(sources)) - np.repeat(np.cumsum(counts) - counts, counts)
    return sources, numbers.tolist()


def files_of(table: pa.Table, name: str, expected: str) -> pa.ChunkedArray:
    """Return the bytes of the files in the column `name`. Raise `ContractError` if it does not exist or has no files.

    `expected` begins the message: the step and the content, such as "pdf_text: expected a PDF file".
    """
    require_columns(table, [name], expected.partition(":")[0])
    if not holds_files(table[name].type):
        raise ContractError(f"{expected} ({FILES}) in column {name!r}, found {table[name].type}.", "preprocess")
    return files_in(table[name])


@dataclass(frozen=True)
class FileRows:
    """The rows that a step made from one file. `suffixes`, and each of `columns`, have one value per row.

    A suffix ends the `row_id` of its row, such as 3 in `report.pdf#3`.
    """

    suffixes: Sequence[object]
    columns: Mapping[str, Sequence[Any]]


def expand_files(
    table: pa.Table, column: str, expected: str, schema: pa.Schema, make: Callable[[bytes, int], FileRows]
) -> result.Outcome:
    """Call `make` for each file in `column`, and return all rows that it makes, with the columns of `schema`.

    `make` gets the bytes and the row's number, and raises `RowError` to quarantine it. The type null means arrays.
    """
    sources: list[int] = []
    suffixes: list[object] = []
    values: dict[str, list[Any]] = {name: [] for name in schema.names}
    errors: dict[int, Exception] = {}
    for row, value in enumerate(files_of(table, column, expected)):
        file = value.as_py()
        try:
            if not file:
                problem = "found null" if file is None else "the file is empty (0 bytes)"
                raise RowError(f"{expected}, {problem}")
            rows = make(file, row)
        except RowError as error:
            errors[row] = error
            continue
        sources += [row] * len(rows.suffixes)
        suffixes += rows.suffixes
        for name in schema.names:
            values[name] += rows.columns[name]
    columns: dict[str, Column] = dict(values)
    for field in schema:
        if not types.is_null(field.type):
            columns[field.name] = pa.array(values[field.name], field.type)
    return result.several(columns, sources, suffixes, errors)
