"""Models that are chosen row by row, and a model in a store."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import TensorProto, helper

from overnight.tasks.errors import JobError
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, parquet, published, write_parquet

CASCADE = """
class Sure:
    def __call__(self, batch):
        return {"is": batch["x"][:, 0] > 0}


class Heavy:
    def __call__(self, batch):
        if (batch["n"] < 10).any():
            raise ValueError("not one of mine")
        return {"seen": batch["n"]}
"""


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """A matrix as an ONNX file, beside a table of vectors in the test's `in`."""
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(x.ravel(), 4)
    write_parquet(tmp_path / "in/a.parquet", n=range(40), x=vectors, sure_is=range(40))
    values = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "matrix"], ["product"])],
        "matrix",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, ["rows", 2])],
        [helper.make_tensor("matrix", TensorProto.FLOAT, values.shape, values.ravel())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "matrix.onnx")
    return tmp_path / "matrix.onnx"


def test_a_heavy_model_sees_only_the_rows_that_a_light_one_selects(
    matrix: Path, run_job: RunJob, tmp_path: Path
) -> None:
    (WORKER_PATH / "cascade.py").write_text(CASCADE)
    models = [
        {"kind": "onnx", "name": "light", "file": str(matrix), "columns": ["x"]},
        {"kind": "python", "name": "sure", "target": "cascade:Sure"},
        {"kind": "python", "name": "heavy", "target": "cascade:Heavy", "where": "not sure_is and n >= 10"},
    ]
    sink = {"kind": "parquet", "path": f"{tmp_path}/out", "rows_per_part": 7}
    receipt = run_job(jobs.job(tmp_path, source=parquet(tmp_path), inference=models, sink=sink))
    assert_settled(receipt, written=40)
    table = published(receipt, tmp_path / "out").sort_by("n")
    chosen = [n >= 10 and not sure for n, sure in enumerate(table["sure_is"].to_pylist())]
    assert 0 < sum(chosen) < 30
    assert table["heavy_seen"].to_pylist() == [n if is_it else None for n, is_it in enumerate(chosen)]
    assert receipt["rows_quarantined"] == 0
    [warning] = receipt["warnings"]
    assert warning.startswith("inference sure: the model replaces the column 'sure_is', which the rows have before it.")


def test_a_model_in_a_store_is_fetched_for_the_run_and_makes_it_stale_when_it_changes(
    matrix: Path, run_job: RunJob, s3: Any, tmp_path: Path
) -> None:
    s3.create_bucket(Bucket="models")
    s3.upload_file(str(matrix), "models", "night/matrix.onnx")
    stored = {"kind": "onnx", "file": "s3://models/night/matrix.onnx", "columns": ["x"]}
    job = jobs.job(tmp_path, source=parquet(tmp_path), inference=[stored])
    receipt = run_job(job)
    assert receipt["ingredients"]["models"][0].keys() == {"matrix.onnx"}
    assert (receipt["commits"], receipt["warnings"]) == ({}, [])
    assert [path.name for path in Path(os.environ["OVERNIGHT_MODEL_CACHE"]).glob("*/*")] == ["matrix.onnx"]
    s3.put_object(Bucket="models", Key="night/matrix.onnx", Body=matrix.read_bytes())
    assert run_job(job)["generation"] == receipt["generation"]  # a copy of the same bytes
    s3.put_object(Bucket="models", Key="night/matrix.onnx", Body=b"another")
    with pytest.raises(JobError, match="expected an ONNX model"):
        run_job(job)
