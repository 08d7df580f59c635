"""Models and steps in a row: each reads what those before it made, and every source row is accounted for."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.flows.job.model import Job
from overnight.flows.preview import preview
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import (
    RunJob,
    assert_quarantined,
    assert_settled,
    parquet,
    published,
    quarantine,
    write_parquet,
)

MODELS = """
import numpy as np


class Double:
    def __call__(self, batch):
        if (batch["x"] == 7).any():
            raise ValueError("seven is refused")
        return {"out": batch["x"] * 2, "many": [list(range(n % 3)) for n in batch["x"]]}


class Length:
    def __call__(self, batch):
        return {"of": np.array([len(str(value)) for value in batch["double_many"]]), "seen": batch["double_out"]}


def halve(batch):
    if (batch["double_out"] == 22).any():
        raise ValueError("22 is refused")
    return {"half": batch["double_out"] // 2}
"""
ROWS = 60
CHAIN: list[dict[str, Any]] = [
    {"kind": "filter_rows", "expression": "x < 50"},
    {"kind": "python", "name": "double", "target": "chained:Double"},
    {"kind": "python", "target": "chained:halve"},
    {"kind": "explode", "columns": ["double_many"]},
    {"kind": "python", "name": "length", "target": "chained:Length"},
    {"kind": "filter_rows", "expression": "double_out % 4 <> 0"},
    {"kind": "select_columns", "columns": ["half", "length_of", "length_seen", "double_many"]},
    {"kind": "rename_columns", "columns": {"length_seen": "doubled"}},
]


COLUMNS = ["row_id", "uri", "half", "length_of", "doubled", "double_many"]
EXPECTED = sorted(
    (f"{x // 20}.parquet#{x % 20}.{part}", x, 1, 2 * x, part)
    for x in range(50)
    for part in range(x % 3)
    if x not in (7, 11) and 2 * x % 4
)
REFUSED = {"0.parquet#7": "seven is refused", "0.parquet#11": "22 is refused"}


def write_numbers(folder: Path) -> None:
    (WORKER_PATH / "chained.py").write_text(MODELS)
    for part in range(3):
        write_parquet(folder / f"in/{part}.parquet", x=range(part * ROWS // 3, (part + 1) * ROWS // 3))


def values(rows: pa.Table) -> list[tuple[Any, ...]]:
    """The rows without `uri`, by `row_id`."""
    return sorted(zip(*rows.drop_columns("uri").to_pydict().values(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("device", [{}, {"resources": {"NPU": 1}}], ids=["in the workers", "as tasks beside a device"])
def test_steps_between_models_filter_make_and_lose_rows_each_source_row_is_settled_and_a_preview_has_the_same_rows(
    tmp_path: Path, run_job: RunJob, device: dict[str, Any]
) -> None:
    write_numbers(tmp_path)
    chain = [entry | (device if entry.get("name") == "double" else {}) for entry in CHAIN]
    job = jobs.job(tmp_path, source=parquet(tmp_path), inference=chain, checks={"max_quarantined": 0.1})
    receipt = run_job(job)
    rows = published(receipt, tmp_path / "out")
    assert (rows.column_names, values(rows)) == (COLUMNS, EXPECTED)
    assert_quarantined(tmp_path / "out", REFUSED)
    assert (receipt["rows_in"], receipt["rows_quarantined"]) == (ROWS, 2)
    assert_settled(receipt, len({row_id.rpartition(".")[0] for row_id in rows["row_id"].to_pylist()}))
    if not device:
        seen = preview(Job.model_validate(job), ROWS)
        assert seen.schema.equals(rows.schema)
        assert seen.sort_by("row_id").equals(rows.sort_by("row_id"))
        bad = sorted(seen.quarantine.to_pylist(), key=itemgetter("row_id"))
        assert bad == sorted(quarantine(tmp_path / "out", "all"), key=itemgetter("row_id"))
        assert seen.filtered == receipt["rows_filtered"]
