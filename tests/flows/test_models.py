"""Models that are chosen row by row, and what is reserved for them."""

import importlib
import os
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper

from overnight.tasks.errors import JobError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published

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
RESERVED = """
import ray


def npus(count):
    return [ray.get_runtime_context().get_assigned_resources().get("NPU")] * count


class Model:
    def __call__(self, batch):
        return {"npus": npus(len(batch["n"]))}


class Estimator:
    def predict(self, table):
        return npus(len(table))
"""
X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A table of vectors, and a matrix as an ONNX file."""
    vectors = pa.FixedSizeListArray.from_arrays(X.ravel(), 4)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"n": range(40), "x": vectors}), tmp_path / "in/a.parquet")
    matrix = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "matrix"], ["product"])],
        "matrix",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, ["rows", 2])],
        [helper.make_tensor("matrix", TensorProto.FLOAT, matrix.shape, matrix.ravel())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "matrix.onnx")
    return tmp_path


def test_a_heavy_model_sees_only_the_rows_that_a_light_one_selects(here: Path, run_job: RunJob) -> None:
    (WORKER_PATH / "cascade.py").write_text(CASCADE)
    rows = pq.read_table(here / "in/a.parquet")
    pq.write_table(rows.append_column("sure_is", rows["n"]), here / "in/a.parquet")
    job = {
        "name": "cascade",
        "source": {"kind": "parquet", "path": str(here / "in")},
        "inference": [
            {"kind": "onnx", "name": "light", "file": str(here / "matrix.onnx"), "columns": ["x"]},
            {"kind": "python", "name": "sure", "target": "cascade:Sure"},
            {"kind": "python", "name": "heavy", "target": "cascade:Heavy", "where": "not sure_is and n >= 10"},
        ],
        "sink": {"kind": "parquet", "path": str(here / "out"), "rows_per_part": 7},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=40)
    table = published(receipt, here / "out").sort_by("n")
    chosen = [n >= 10 and not sure for n, sure in enumerate(table["sure_is"].to_pylist())]
    assert 0 < sum(chosen) < 30
    assert table["heavy_seen"].to_pylist() == [n if is_it else None for n, is_it in enumerate(chosen)]
    assert receipt["rows_quarantined"] == 0
    [warning] = receipt["warnings"]
    assert warning.startswith("inference sure: the model replaces the column 'sure_is', which the rows have before it.")


@pytest.mark.slow
def test_what_ray_knows_under_another_name_is_reserved_for_a_model_of_any_kind(here: Path, run_job: RunJob) -> None:
    (WORKER_PATH / "reserved.py").write_text(RESERVED)
    joblib.dump(importlib.import_module("reserved").Estimator(), here / "estimator.joblib")
    job: dict[str, Any] = {
        "name": "reserved",
        "source": {"kind": "parquet", "path": str(here / "in")},
        "inference": [
            {"kind": "python", "name": "own", "target": "reserved:Model", "resources": {"NPU": 1}},
            {
                "kind": "sklearn",
                "name": "table",
                "resources": {"NPU": 0.5},
                "file": f"{here}/estimator.joblib",
                "columns": ["n"],
            },
        ],
        "sink": {"kind": "parquet", "path": str(here / "out")},
    }
    table = published(run_job(job), here / "out")
    assert (set(table["own_npus"].to_pylist()), set(table["table_prediction"].to_pylist())) == ({1}, {0.5})
    none = {"kind": "onnx", "file": str(here / "matrix.onnx"), "columns": ["x"], "resources": {"NPU": 1}}
    with pytest.raises(JobError, match=r"resources: NPU: 1 reserves an accelerator, but onnxruntime .* finds none"):
        run_job(job | {"inference": [none]})


def test_a_model_in_a_store_is_fetched_for_the_run_and_makes_it_stale_when_it_changes(
    here: Path, run_job: RunJob, s3: Any, tmp_path: Path
) -> None:
    s3.create_bucket(Bucket="models")
    s3.upload_file(str(here / "matrix.onnx"), "models", "night/matrix.onnx")
    job = {
        "name": "stored",
        "source": {"kind": "parquet", "path": str(here / "in")},
        "inference": [{"kind": "onnx", "file": "s3://models/night/matrix.onnx", "columns": ["x"]}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert receipt["ingredients"]["models"][0].keys() == {"matrix.onnx"}
    assert receipt["commits"] == {}
    assert receipt["warnings"] == []
    assert [path.name for path in Path(os.environ["OVERNIGHT_MODEL_CACHE"]).glob("*/*")] == ["matrix.onnx"]
    assert run_job(job)["generation"] == receipt["generation"]
    s3.put_object(Bucket="models", Key="night/matrix.onnx", Body=(here / "matrix.onnx").read_bytes())
    assert run_job(job)["generation"] == receipt["generation"]  # a copy of the same bytes
    s3.put_object(Bucket="models", Key="night/matrix.onnx", Body=b"another")
    with pytest.raises(JobError, match=r"s3://models/night/matrix.onnx: expected an ONNX model"):
        run_job(job)
