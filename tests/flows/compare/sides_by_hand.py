"""Sides of a comparison, written by hand."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from overnight.flows.compare.comparison import Comparison, compare_sides
from overnight.flows.compare.sides import Drawing, Side
from tests.flows.report.runs import job_of


def compared(folder: Path, a: pa.Table, b: pa.Table, column: str | None = None, **quarantined: Any) -> Comparison:
    job = job_of(folder)
    sides = Side("A's job", job, a, {"rows_out": len(a)}), Side("B's job", job, b, {}, quarantined)
    comparison = compare_sides(*sides, Drawing(), max(len(a), len(b)), column)
    comparison.is_complete = True
    return comparison


def labelled(labels: list[Any], **more: Any) -> pa.Table:
    return pa.table({"row_id": [str(number) for number in range(len(labels))], "predicted_label": labels} | more)
