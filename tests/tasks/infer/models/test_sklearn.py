"""scikit-learn: what the suite of models does not hold."""

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

from overnight.tasks.errors import ContractError, JobError
from overnight.tasks.infer.models.sklearn import SklearnModel

VECTORS = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)


def saved(folder: Path, estimator: Any, **settings: Any) -> SklearnModel:
    joblib.dump(estimator, folder / "model.joblib")
    return SklearnModel(file=str(folder / "model.joblib"), columns=["v"], **settings)


def test_vectors_in_an_array_of_objects_are_a_matrix(tmp_path: Path) -> None:
    estimator = LinearRegression().fit(VECTORS, VECTORS[:, 0])
    values = np.empty(60, object)
    values[:] = list(VECTORS)
    found = saved(tmp_path, estimator).load()({"v": values})
    np.testing.assert_allclose(found["prediction"], estimator.predict(VECTORS), rtol=1e-5)


def test_an_estimator_without_the_methods_that_the_job_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="found StandardScaler without predict"):
        saved(tmp_path, StandardScaler()).load()
    with pytest.raises(JobError, match="found LinearRegression without predict_proba"):
        saved(tmp_path, LinearRegression(), probabilities=True).load()


def test_probabilities_of_several_outputs_are_refused_instead_of_mixed(tmp_path: Path) -> None:
    several = RandomForestClassifier(3, random_state=0).fit(VECTORS, (VECTORS[:, :2] > 0).astype(int))
    model = saved(tmp_path, several, probabilities=True).load()
    for count in (2, 9):
        with pytest.raises(ContractError, match="found 2 arrays, one for each output"):
            model({"v": VECTORS[:count]})
