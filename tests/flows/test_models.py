"""A model in a store, in whole runs: fetched once, and part of what a run is made of."""

import os
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import JobError
from tests import jobs
from tests.contracts.models.adapters.arrays import ONNX
from tests.flows.conftest import RunJob, parquet, published, write_parquet


@pytest.mark.slow
def test_a_model_in_a_store_is_fetched_for_the_run_and_makes_it_stale_when_it_changes(
    run_job: RunJob, s3: Any, tmp_path: Path
) -> None:
    case = ONNX.forms["one output"](tmp_path)
    file = Path(case.settings["file"])
    write_parquet(tmp_path / "in/a.parquet", x=list(case.columns["x"]))
    s3.create_bucket(Bucket="models")
    s3.upload_file(str(file), "models", "night/matrix.onnx")
    stored = {"kind": "onnx", "file": "s3://models/night/matrix.onnx", "columns": ["x"]}
    job = jobs.job(tmp_path, source=parquet(tmp_path), inference=[stored])
    receipt = run_job(job)
    scores = published(receipt, tmp_path / "out").sort_by("row_id")["scores"].to_pylist()
    assert scores == [pytest.approx(row["scores"], abs=case.tolerance) for row in case.expected]
    assert receipt["ingredients"]["models"][0].keys() == {"matrix.onnx"}
    assert (receipt["commits"], receipt["warnings"]) == ({}, [])
    assert [path.name for path in Path(os.environ["OVERNIGHT_MODEL_CACHE"]).glob("*/*")] == ["matrix.onnx"]
    s3.put_object(Bucket="models", Key="night/matrix.onnx", Body=file.read_bytes())
    assert run_job(job)["generation"] == receipt["generation"]  # a copy of the same bytes
    s3.put_object(Bucket="models", Key="night/matrix.onnx", Body=b"another")
    with pytest.raises(JobError, match="expected an ONNX model"):
        run_job(job)
