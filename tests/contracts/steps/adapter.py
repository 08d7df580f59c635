"""What the suite needs of a step, and the rows that the step makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import apply, blocks
from overnight.tasks.rows.tensors import TENSOR, to_numpy
from tests.tasks.blocks import source_block

Row = dict[str, Any]


@dataclass(frozen=True)
class StepAdapter:
    """A step with rows that it can work on, the rows that an independent reading makes of each, and damaged rows.

    `rows` lack `row_id`. `expected` has, for each row, the columns that the step makes, once per output row.
    `broken` has rows that fail alone, each with a part of its reason. `unusable` has columns of types that the step
    cannot read, one row each.
    """

    step: PreprocessStep
    rows: pa.Table
    expected: Sequence[Sequence[Row]]
    suffixes: Sequence[Sequence[object]] | None = None
    broken: Mapping[str, tuple[Row, str]] = field(default_factory=dict)
    unusable: Sequence[tuple[str, pa.Array]] = ()

    def with_ids(self) -> pa.Table:
        """Return the rows with their `row_id`."""
        return named(self.rows)

    def broken_rows(self) -> pa.Table:
        """Return the damaged rows, in the types of `rows`."""
        return named(pa.Table.from_pylist([row for row, _ in self.broken.values()], self.rows.schema), "bad")

    def ids(self, names: Sequence[str]) -> list[str]:
        """Return the ids of all output rows of the rows `names`."""
        if self.suffixes is None:
            return [name for name, made in zip(names, self.expected, strict=True) for _ in made]
        return [f"{name}#{end}" for name, ends in zip(names, self.suffixes, strict=True) for end in ends]


def named(rows: pa.Table, prefix: str = "file") -> pa.Table:
    """Return the rows with a `row_id` each, such as `file0`."""
    return rows.add_column(0, "row_id", pa.array([f"{prefix}{number}" for number in range(len(rows))], pa.string()))


def applied(step: PreprocessStep, rows: pa.Table, keep: Sequence[str] = ()) -> pa.Table:
    """Return the block that `step` makes of rows."""
    return apply.apply(source_block(0, 0, rows), "preprocess", step.build(), keep=keep)


def on_files(step: PreprocessStep, *contents: bytes) -> pa.Table:
    """Return the block that `step` makes of files, in the column that it reads."""
    column = step.column_effect().reads[0]
    return applied(step, named(pa.table({column: pa.array(contents, pa.large_binary())})))


def made_of_files(step: PreprocessStep, *contents: bytes) -> list[Row]:
    """Return the rows that `step` makes of files, all of which are whole."""
    block = on_files(step, *contents)
    assert reasons(block) == {}
    return made(block)


def made(block: pa.Table) -> list[Row]:
    """Return the live rows of a block; arrays are NumPy arrays."""
    table, _ = blocks.live_rows(block)
    columns = {name: list(_values(table[name])) for name in table.column_names}
    return [{name: values[row] for name, values in columns.items()} for row in range(len(table))]


def _values(column: pa.ChunkedArray) -> Any:
    return to_numpy(column) if column.type == TENSOR else column.to_pylist()


def reasons(block: pa.Table) -> dict[str, str]:
    """Return the reason of each quarantined row by its id."""
    states = block["__state"].to_pylist()
    pairs = zip(block["row_id"].to_pylist(), block["__error_message"].to_pylist(), states, strict=True)
    return {name: reason for name, reason, state in pairs if state == blocks.QUARANTINED}


def assert_same(found: Any, expected: Any) -> None:
    """Compare values and their types exactly; NaN equals NaN, and an array another of its type, shape and bits."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_same(found[name], expected[name])
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert type(found) is type(expected), (found, expected)
        assert found == expected or repr(found) == repr(expected) == "nan", (found, expected)
