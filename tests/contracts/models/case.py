"""A model of one form, the rows that it gets, and the result that its library gives for each row alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.tensors import to_arrow, to_numpy
from overnight.tasks.workers.row_isolation import TOGETHER
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

Rows = list[dict[str, Any]]
Work = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Case:
    """`settings` of the model, the columns of its rows, and what its library gives for each of them alone."""

    settings: dict[str, Any]
    columns: dict[str, Any]
    expected: Rows
    tolerance: float = 1e-4
    kind: str = ""  # filled in by the suite

    @property
    def table(self) -> pa.Table:
        """The rows, with ids."""
        made = {name: to_arrow(values) for name, values in self.columns.items()}
        return pa.table({"row_id": [f"r{row}" for row in range(len(self.expected))], **made})

    def model(self, **changes: Any) -> Predictor:
        """The model of a job file."""
        settings = {"kind": self.kind, **self.settings, **changes}
        made: Predictor = TypeAdapter(AnyPredictor).validate_python(settings)
        return made

    def results(self, work: Work, table: pa.Table | None = None) -> Rows:
        """The columns that the model adds, row by row; no row may fail."""
        done = work(self.table if table is None else table)
        assert [error for error in done["__error_message"].to_pylist() if error] == []
        return self.added(done)

    def added(self, done: pa.Table) -> Rows:
        """The columns that the model added to the rows that did not fail."""
        live = blocks.live_rows(done)[0]
        made = {
            name: to_numpy(live[name]).tolist() for name in live.column_names if name not in self.table.column_names
        }
        return [dict(zip(made, row, strict=True)) for row in zip(*made.values(), strict=True)]

    def assert_rows(self, found: Rows, expected: Rows | None = None) -> None:
        expected = self.expected if expected is None else expected
        assert len(found) == len(expected)
        for number, (row, wanted) in enumerate(zip(found, expected, strict=True)):
            for name, value in wanted.items():
                assert_same(row[name], value, self.tolerance, f"row {number}: {name}")


@dataclass(frozen=True)
class ModelLeaf:
    """The forms in which a model of one kind is saved, by name, and its input column.

    `wrong` has values of that column that no row survives, each with words of the reason. `half` is the form that runs
    in half precision.
    """

    forms: Mapping[str, Callable[[Path], Case]]
    column: str
    wrong: Sequence[tuple[Any, str]] = ()
    half: str = ""

    @property
    def first(self) -> str:
        return next(iter(self.forms))


def worker_of(model: Predictor, folder: Path) -> Work:
    """A function that returns rows as the model's worker passes them on."""
    worker = Link(model, read=None).load(make_run(folder))
    return lambda table: rebatch.joined(worker.on([source_block(0, 0, table)], TOGETHER))


def assert_same(found: Any, expected: Any, tolerance: float, place: str = "") -> None:
    """Compare values, and numbers within a tolerance; a field that the library leaves out is null."""
    found, expected = (value.tolist() if hasattr(value, "tolist") else value for value in (found, expected))
    if isinstance(expected, Mapping):
        assert {name for name, value in found.items() if value is not None} <= set(expected), place
        for name, value in expected.items():
            assert_same(found[name], value, tolerance, f"{place}.{name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), f"{place}: {found} and {expected}"
        for number, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, tolerance, f"{place}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True), place
    else:
        assert found == expected, f"{place}: {found!r} and {expected!r}"
