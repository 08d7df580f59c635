"""Estimators of scikit-learn's predict, row for row, what they predict when they are called."""

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from overnight.tasks.errors import JobError
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.sklearn import SklearnModel
from overnight.tasks.infer.worker import Worker
from overnight.tasks.rows import blocks, rebatch
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run

DRAW = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {"age": DRAW.integers(18, 80, 60), "income": DRAW.normal(50, 9, 60), "city": DRAW.choice(["Rome", "Oslo"], 60)}
)
BUYS = np.where(TABLE["age"] + DRAW.normal(0, 9, 60) > 45, "yes", "no")
VECTORS = DRAW.normal(size=(60, 8)).astype(np.float32)


@pytest.fixture
def pipeline(tmp_path: Path) -> tuple[Any, str]:
    columns = make_column_transformer((StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(columns, LogisticRegression()).fit(TABLE, BUYS)
    joblib.dump(model, tmp_path / "buys.joblib")
    return model, str(tmp_path / "buys.joblib")


def batch(table: pd.DataFrame = TABLE) -> dict[str, np.ndarray]:
    return {name: table[name].to_numpy(object if name == "city" else None) for name in table}


@pytest.mark.filterwarnings("error")
def test_a_pipeline_over_named_columns_predicts_the_same(pipeline: tuple[Any, str]) -> None:
    model, file = pipeline
    found = SklearnModel(file=file, columns=["age", "income", "city"], probabilities=True).load()(batch())
    assert found["prediction"].tolist() == model.predict(TABLE).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(TABLE), atol=1e-6)
    np.testing.assert_allclose(found["confidence"], model.predict_proba(TABLE).max(1), atol=1e-6)
    assert {found["confidence"].dtype, found["probabilities"].dtype} == {np.dtype(np.float32)}
    assert SklearnModel(file=file, columns=["age", "income", "city"]).load()(batch()).keys() == {"prediction"}


@pytest.mark.parametrize("as_objects", [False, True])
def test_one_column_of_vectors_is_a_matrix(tmp_path: Path, as_objects: bool) -> None:
    model = LinearRegression().fit(VECTORS, TABLE["income"])
    joblib.dump(model, tmp_path / "income.joblib")
    values = VECTORS
    if as_objects:
        values = np.empty(60, object)
        values[:] = list(VECTORS)
    found = SklearnModel(file=str(tmp_path / "income.joblib"), columns=["v"]).load()({"v": values})
    np.testing.assert_allclose(found["prediction"], model.predict(VECTORS), rtol=1e-5)


def test_a_row_that_it_cannot_take_costs_that_row(pipeline: tuple[Any, str], tmp_path: Path) -> None:
    table = TABLE.head(5).copy()
    table["income"] = [1.0, 2.0, None, 4.0, 5.0]
    table["city"] = ["Rome", "Oslo", "Rome", "Atlantis", "Rome"]
    block = source_block(0, 0, pa.table({"row_id": list("abcde"), **pa.Table.from_pandas(table).to_pydict()}))
    model = SklearnModel(file=pipeline[1], columns=["age", "income", "city"])
    done = rebatch.joined(Worker(Link(model), make_run(tmp_path))(block))
    states = [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED, blocks.QUARANTINED, blocks.LIVE]
    assert done["__state"].to_pylist() == states
    assert "NaN" in done["__error_message"][2].as_py()
    assert "Atlantis" in done["__error_message"][3].as_py()


def test_what_cannot_be_loaded_says_so(pipeline: tuple[Any, str], tmp_path: Path) -> None:
    (tmp_path / "torn.joblib").write_bytes(Path(pipeline[1]).read_bytes()[:50])
    with pytest.raises(JobError, match=r"expected an estimator as joblib.dump or pickle saves it"):
        SklearnModel(file=str(tmp_path / "torn.joblib"), columns=["age"]).load()
    joblib.dump(StandardScaler(), tmp_path / "scaler.joblib")
    with pytest.raises(JobError, match="expected an estimator with predict, found StandardScaler without predict"):
        SklearnModel(file=str(tmp_path / "scaler.joblib"), columns=["age"]).load()
    joblib.dump(LinearRegression(), tmp_path / "linear.joblib")
    with pytest.raises(JobError, match="found LinearRegression without predict_proba"):
        SklearnModel(file=str(tmp_path / "linear.joblib"), columns=["age"], probabilities=True).load()


def test_another_file_is_another_fingerprint(pipeline: tuple[Any, str]) -> None:
    model = SklearnModel(file=pipeline[1], columns=["age"])
    first = model.fingerprint()
    joblib.dump(LinearRegression(), pipeline[1])
    assert first.keys() == {"buys.joblib"}
    assert model.fingerprint() != first
