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
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.tensors import to_arrow, to_numpy
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run


@dataclass(frozen=True)
class Case:
    """`settings` of the model, the columns of its rows, and what its library gives for each of them alone."""

    settings: dict[str, Any]
    columns: dict[str, Any]
    expected: list[dict[str, Any]]
    tolerance: float = 1e-4

    @property
    def table(self) -> pa.Table:
        """The rows, with ids."""
        made = {name: to_arrow(values) for name, values in self.columns.items()}
        return pa.table({"row_id": [f"r{row}" for row in range(len(self.expected))], **made})


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


def predictor(kind: str, settings: Mapping[str, Any]) -> Predictor:
    """The model of a job file."""
    made: Predictor = TypeAdapter(AnyPredictor).validate_python({"kind": kind, **settings})
    return made


def worked(model: Predictor, table: pa.Table, folder: Path) -> pa.Table:
    """The rows, as the model's worker passes them on."""
    return rebatch.joined(list(Worker(Link(model, read=None), make_run(folder))(source_block(0, 0, table))))


def results(model: Predictor, table: pa.Table, folder: Path) -> list[dict[str, Any]]:
    """The columns that the model adds, row by row; no row may fail."""
    done = worked(model, table, folder)
    assert [error for error in done["__error_message"].to_pylist() if error] == []
    return rows_of(blocks.live_rows(done)[0], table)


def rows_of(live: pa.Table, table: pa.Table) -> list[dict[str, Any]]:
    made = {name: to_numpy(live[name]).tolist() for name in live.column_names if name not in table.column_names}
    return [dict(zip(made, row, strict=True)) for row in zip(*made.values(), strict=True)]


def assert_same(found: Any, expected: Any, tolerance: float, place: str = "") -> None:
    """Compare values, and numbers within a tolerance; a field that the library leaves out is null."""
    if hasattr(expected, "tolist"):
        expected = expected.tolist()
    if hasattr(found, "tolist"):
        found = found.tolist()
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
