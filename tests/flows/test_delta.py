"""A job with a Delta sink, end to end: publish, publish again, time travel, and a second run that does nothing."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from overnight.flows.job.model import Job
from overnight.flows.runs.attempt import fresh_receipt
from overnight.flows.runs.run import describe_run
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, quarantine

MODEL = """
import numpy as np


class Mean:
    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, batch):
        means = np.array([image.mean() * self.scale for image in batch["image"]])
        return {"mean": means, "vector": np.stack([means, means], 1).astype(np.float32)}
"""


@pytest.fixture(autouse=True, scope="module")
def _model() -> None:
    (WORKER_PATH / "delta_test_models.py").write_text(MODEL)


@pytest.fixture
def job(pictures: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "pictures",
        "source": {"kind": "images", "path": str(pictures.parent / "date={partition}"), "label_from": "parent"},
        "inference": [{"kind": "python", "target": "delta_test_models:Mean"}],
        "checks": {"max_quarantined": 0.2},
        "sink": {"kind": "delta", "path": str(tmp_path / "out")},
    }


def rows(table: DeltaTable, date: str = "2026-01-02") -> dict[str, float]:
    connection = duckdb.connect()
    connection.register("published", table.to_pyarrow_dataset())
    query = f"SELECT row_id, mean FROM published WHERE date = '{date}' AND len(vector) = 2"
    return dict(connection.execute(query).fetchall())


def means(scale: float) -> dict[str, float]:
    return {f"{'cat' if i % 2 else 'dog'}/{i:02d}.png": i * 20.0 * scale for i in range(12)}


@pytest.mark.slow
def test_a_partition_is_published_replaced_and_found_in_the_past(
    run_job: RunJob, job: dict[str, Any], pictures: Path, tmp_path: Path
) -> None:
    other = pa.table({"row_id": ["mine"], "mean": [0.5], "vector": [[0.0, 1.0]]})
    other = other.set_column(2, "vector", other["vector"].cast(pa.list_(pa.float32())))
    other = other.append_column("date", pa.array(["2026-01-01"]).cast(pa.date32()))
    write_deltalake(tmp_path / "out", other, partition_by=["date"])
    (pictures / "cat/broken.png").write_bytes(b"no picture")
    first = run_job(job, "2026-01-02")
    assert_settled(first)
    assert (first["rows_out"], first["rows_quarantined"]) == (12, 1)
    assert [row["row_id"] for row in quarantine(tmp_path / "out", "date=2026-01-02")] == ["cat/broken.png"]
    table = DeltaTable(tmp_path / "out")
    assert rows(table) == means(1)
    assert sorted(first["files"]) == sorted(
        uri.split("/out/")[1] for uri in table.file_uris() if "date=2026-01-02" in uri
    )
    assert json.loads((tmp_path / "out/_overnight/date=2026-01-02/receipt.json").read_text()) == first

    job["inference"][0]["kwargs"] = {"scale": 2.0}
    second = run_job(job, "2026-01-02", force=True)
    newest = DeltaTable(tmp_path / "out")
    assert rows(newest) == means(2)
    assert rows(newest, "2026-01-01") == {"mine": 0.5}
    assert newest.history(1)[0]["overnight"]["generation"] == second["generation"]
    newest.load_as_version(table.version())
    assert rows(newest) == means(1)

    assert run_job(job, "2026-01-02") == second
    model = Job.model_validate(job)
    assert fresh_receipt(model, describe_run(model, "2026-01-02")) == second
    assert DeltaTable(tmp_path / "out").version() == table.version() + 1
